// Packed trees: they span, they share out the buffer, and they come near to the best that there is.
#include "trireme/packing.h"

#include "support/graphs.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace trireme {
namespace {

using test::join;
using test::usage_error;

const LinkGraph::Edge* edge_between(const LinkGraph& graph, int a, int b) {
  for (const LinkGraph::Edge& edge : graph.edges) {
    if ((edge.a == a && edge.b == b) || (edge.a == b && edge.b == a)) return &edge;
  }
  return nullptr;
}

void expect_spanning_trees(const LinkGraph& graph, const TreePacking& packing) {
  int blocks = 0;
  for (const PackedTree& tree : packing.trees) {
    EXPECT_GE(tree.blocks, 1);
    blocks += tree.blocks;
    ASSERT_EQ(static_cast<int>(tree.parent.size()), graph.ranks);
    ASSERT_EQ(tree.parent[tree.root], -1);
    int height = 0;
    for (int rank = 0; rank < graph.ranks; ++rank) {
      int depth = 0;
      for (int at = rank; at != tree.root; at = tree.parent[at], ++depth) {
        ASSERT_LT(depth, graph.ranks) << "rank " << rank << " never comes to the root";
        ASSERT_NE(edge_between(graph, at, tree.parent[at]), nullptr) << at << " and " << tree.parent[at];
      }
      EXPECT_EQ(tree.depth(rank), depth);
      height = std::max(height, depth);
    }
    EXPECT_EQ(tree.height(), height);
  }
  EXPECT_EQ(blocks, packing.blocks);
  for (std::size_t i = 0; i < packing.trees.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(packing.trees[i].parent, packing.trees[j].parent);
  }
}

// How long the busiest link is busy with one way of a buffer of 1.
double time_of(const LinkGraph& graph, const TreePacking& packing) {
  std::vector<double> load(graph.bandwidth.size());
  for (const PackedTree& tree : packing.trees) {
    for (int rank = 0; rank < graph.ranks; ++rank) {
      if (rank == tree.root) continue;
      for (const int link : edge_between(graph, rank, tree.parent[rank])->links) {
        load[link] += static_cast<double>(tree.blocks) / packing.blocks;
      }
    }
  }
  double most = 0;
  for (std::size_t link = 0; link < load.size(); ++link) most = std::max(most, load[link] / graph.bandwidth[link]);
  return most;
}

// The most buffers a second that trees can carry, where every edge has a link of its own: the least, over all ways to
// part the ranks into k >= 2 sets, of what the links between sets carry over k - 1. Tutte; Nash-Williams, 1961.
double best_rate(const LinkGraph& graph) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<int> set(graph.ranks);
  const std::function<void(int, int)> part = [&](int rank, int sets) {
    if (rank < graph.ranks) {
      for (set[rank] = 0; set[rank] <= sets; ++set[rank]) part(rank + 1, std::max(sets, set[rank] + 1));
      return;
    }
    if (sets < 2) return;
    double crossing = 0;
    for (const LinkGraph::Edge& edge : graph.edges) {
      if (set[edge.a] != set[edge.b]) crossing += graph.bandwidth[edge.links.front()];
    }
    best = std::min(best, crossing / (sets - 1));
  };
  part(0, 0);
  return best;
}

// Packs, checks the trees, and says how many times longer they take than the best.
double over_best(const LinkGraph& graph, double best) {
  const TreePacking packing = pack_trees(graph);
  expect_spanning_trees(graph, packing);
  const double ratio = time_of(graph, packing) / best;
  EXPECT_GE(ratio, 1 - 1e-9) << "better than can be";
  return ratio;
}

std::string describe(const LinkGraph& graph) {
  std::string text = std::to_string(graph.ranks) + " ranks:";
  for (const LinkGraph::Edge& edge : graph.edges) {
    text += " " + std::to_string(edge.a) + "-" + std::to_string(edge.b) + ":" +
            std::to_string(graph.bandwidth[edge.links.front()]);
  }
  return text;
}

// Trees are dealt out in units, so that not every fraction can be had; and the search is greedy.
TEST(Packing, ComesNearToTheBestOnRandomGraphs) {
  test::Random random(9);
  double sum = 0;
  const int tries = 40 * test::kEffort;
  for (int i = 0; i < tries; ++i) {
    const int ranks = random.between(2, 7);
    const LinkGraph graph = test::random_graph(random, ranks, random.between(1, 4));
    SCOPED_TRACE(describe(graph));
    const double ratio = over_best(graph, 1 / best_rate(graph));
    EXPECT_LT(ratio, 1.1);
    sum += ratio;
    if (HasFatalFailure()) return;
  }
  EXPECT_LT(sum / tries, 1.02);
}

// Units in the number of ranks divide these evenly.
constexpr double kExactly = 1 + 1e-9;

TEST(Packing, IsExactOnARing) {
  for (int ranks = 3; ranks <= 16; ++ranks) {
    SCOPED_TRACE(ranks);
    LinkGraph graph{.ranks = ranks, .bandwidth = {}, .edges = {}};
    for (int rank = 0; rank < ranks; ++rank) join(graph, rank, (rank + 1) % ranks, 4);
    // Each tree leaves out another link.
    EXPECT_LE(over_best(graph, (ranks - 1.0) / ranks / 4), kExactly);
    EXPECT_EQ(static_cast<int>(pack_trees(graph).trees.size()), ranks);
  }
}

TEST(Packing, IsNearlyExactOnACompleteGraph) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    SCOPED_TRACE(ranks);
    LinkGraph graph{.ranks = ranks, .bandwidth = {}, .edges = {}};
    for (int a = 0; a < ranks; ++a) {
      for (int b = a + 1; b < ranks; ++b) join(graph, a, b, 1);
    }
    // P(P-1)/2 links, P-1 of them a tree.
    EXPECT_LT(over_best(graph, 2.0 / ranks), 1.05);
  }
}

TEST(Packing, IsNearlyExactBehindASwitch) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    SCOPED_TRACE(ranks);
    // A tree passes 2(P-1) ends of edges, which P links share.
    EXPECT_LT(over_best(test::switch_graph(std::vector<double>(ranks, 1)), 2 * (ranks - 1.0) / ranks), 1.05);
  }
}

TEST(Packing, LeavesSlowLinksBehindASwitchToLeaves) {
  // Rank 0 is three times as fast, and so the middle of every tree.
  const TreePacking packing = pack_trees(test::switch_graph({3, 1, 1, 1}));
  ASSERT_EQ(packing.trees.size(), 1U);
  EXPECT_EQ(packing.trees[0], (PackedTree{.root = 0, .parent = {-1, 0, 0, 0}, .blocks = 1}));
}

TEST(Packing, IsBoundByTheThinnestCut) {
  // A path.
  LinkGraph path{.ranks = 5, .bandwidth = {}, .edges = {}};
  for (int rank = 0; rank + 1 < 5; ++rank) join(path, rank, rank + 1, rank == 2 ? 2 : 10);
  EXPECT_LE(over_best(path, 1.0 / 2), kExactly);
  const TreePacking packing = pack_trees(path);
  ASSERT_EQ(packing.trees.size(), 1U);
  EXPECT_EQ(packing.trees[0], (PackedTree{.root = 2, .parent = {1, 2, -1, 2, 3}, .blocks = 1}));

  // Two cliques and a thin bridge.
  LinkGraph cliques{.ranks = 8, .bandwidth = {}, .edges = {}};
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) {
      if (a / 4 == b / 4) join(cliques, a, b, 10);
    }
  }
  join(cliques, 3, 4, 1);
  EXPECT_LE(over_best(cliques, 1), kExactly);
  EXPECT_EQ(pack_trees(cliques).trees.size(), 1U);
}

TEST(Packing, TakesOneTreeOfOneRank) {
  const TreePacking packing = pack_trees({});
  EXPECT_EQ(packing.blocks, 1);
  ASSERT_EQ(packing.trees.size(), 1U);
  EXPECT_EQ(packing.trees[0], (PackedTree{.root = 0, .parent = {-1}, .blocks = 1}));
  EXPECT_EQ(packing.trees[0].height(), 0);
}

TEST(Packing, TakesEdgesThatPassNoLink) {
  // Ranks that share memory: any tree will do.
  const LinkGraph graph{.ranks = 3, .bandwidth = {}, .edges = {{0, 1, {}}, {1, 2, {}}, {0, 2, {}}}};
  expect_spanning_trees(graph, pack_trees(graph));
}

TEST(Packing, RefusesWhatItCannotSpan) {
  const std::string unconnected = "the links do not connect all ranks, so no tree spans them";
  LinkGraph graph{.ranks = 4, .bandwidth = {}, .edges = {}};
  EXPECT_EQ(usage_error([&] { pack_trees(graph); }), unconnected);
  join(graph, 0, 1, 1);
  EXPECT_EQ(usage_error([&] { pack_trees(graph); }), unconnected);
  join(graph, 2, 3, 1);
  EXPECT_EQ(usage_error([&] { pack_trees(graph); }), unconnected);
  join(graph, 0, 3, 1);
  EXPECT_EQ(usage_error([&] { pack_trees(graph); }), "nothing was thrown");
  EXPECT_EQ(usage_error([] { pack_trees({.ranks = 0, .bandwidth = {}, .edges = {}}); }),
            "0 ranks have no links to pack trees into");
}

TEST(Packing, RefusesWhatIsNoGraph) {
  const auto two_ranks = [](double bandwidth, LinkGraph::Edge edge) {
    return usage_error([&] { pack_trees({.ranks = 2, .bandwidth = {bandwidth}, .edges = {std::move(edge)}}); });
  };
  EXPECT_EQ(two_ranks(1, {0, 1, {0}}), "nothing was thrown");
  EXPECT_EQ(two_ranks(0, {0, 1, {0}}), "a link of bandwidth 0 can't carry a tree");
  EXPECT_EQ(two_ranks(-1, {0, 1, {0}}), "a link of bandwidth -1 can't carry a tree");
  EXPECT_EQ(two_ranks(std::numeric_limits<double>::infinity(), {0, 1, {0}}),
            "a link of bandwidth inf can't carry a tree");
  EXPECT_EQ(two_ranks(1, {0, 2, {0}}), "the edge between ranks 0 and 2 names what is not in the graph");
  EXPECT_EQ(two_ranks(1, {-1, 1, {0}}), "the edge between ranks -1 and 1 names what is not in the graph");
  EXPECT_EQ(two_ranks(1, {0, 1, {1}}), "the edge between ranks 0 and 1 names what is not in the graph");
}

TEST(Packing, StandsRatesFarApart) {
  // From a bit a second to a petabyte.
  LinkGraph graph{.ranks = 4, .bandwidth = {}, .edges = {}};
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) join(graph, a, b, a == 0 ? 0.125 : 1e15);
  }
  EXPECT_LT(over_best(graph, 1 / best_rate(graph)), 1.01);
}

}  // namespace
}  // namespace trireme
