// Graphs of links to pack trees into.
#pragma once

#include "support/random.h"
#include "trireme/packing.h"

#include <vector>

namespace trireme::test {

/// Joins two ranks by a link of their own.
inline void join(LinkGraph& graph, int a, int b, double bandwidth) {
  graph.edges.push_back({.a = a, .b = b, .links = {static_cast<int>(graph.bandwidth.size())}});
  graph.bandwidth.push_back(bandwidth);
}

/// A connected graph whose edges have a link of their own each; one edge in `sparsity` that could be there is.
inline LinkGraph random_graph(Random& random, int ranks, int sparsity) {
  LinkGraph graph{.ranks = ranks, .bandwidth = {}, .edges = {}};
  const std::vector<double> bandwidths{1, 1, 2, 3, 5, 10, 25};
  const int shift = random.below(ranks);  // so that the tree's root is not always rank 0
  std::vector<int> tree_parent(ranks, -1);
  for (int rank = 1; rank < ranks; ++rank) tree_parent[rank] = random.below(rank);
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      if (tree_parent[b] != a && !random.chance(sparsity)) continue;
      join(graph, (a + shift) % ranks, (b + shift) % ranks, random.pick(bandwidths));
    }
  }
  return graph;
}

/// All ranks behind one switch: a message passes the links of both its ends.
inline LinkGraph switch_graph(const std::vector<double>& bandwidth) {
  LinkGraph graph{.ranks = static_cast<int>(bandwidth.size()), .bandwidth = bandwidth, .edges = {}};
  for (int a = 0; a < graph.ranks; ++a) {
    for (int b = a + 1; b < graph.ranks; ++b) graph.edges.push_back({.a = a, .b = b, .links = {a, b}});
  }
  return graph;
}

}  // namespace trireme::test
