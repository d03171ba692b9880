// Packing spanning trees into a graph of links that differ in bandwidth: the plan that blink follows.
#pragma once

#include <vector>

namespace trireme {

/// Ranks joined by logical edges, each of which uses some physical links. A link carries the same both ways.
struct LinkGraph {
  struct Edge {
    int a, b;                ///< ranks
    std::vector<int> links;  ///< what a message between them passes
  };

  int ranks = 1;
  std::vector<double> bandwidth;  ///< bytes a second of each link
  std::vector<Edge> edges;        ///< at most one a pair
};

/// A spanning tree and its share of the buffer.
struct PackedTree {
  int root;
  std::vector<int> parent;  ///< of each rank; the root's is -1
  int blocks;               ///< its share, in blocks

  int depth(int rank) const;  ///< edges between the root and `rank`
  int height() const;         ///< the largest depth
  bool operator==(const PackedTree&) const = default;
};

struct TreePacking {
  int blocks = 0;  ///< of all trees together
  std::vector<PackedTree> trees;
};

/// Spanning trees whose shares use the links in proportion to what they can carry. Throws UsageError if the edges don't
/// connect all ranks, or name ranks or links that are not there.
TreePacking pack_trees(const LinkGraph& graph);

}  // namespace trireme
