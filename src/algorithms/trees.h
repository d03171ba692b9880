// Reducing up and broadcasting down one tree or several, in a pipeline of segments.
#pragma once

#include "trireme/program.h"

#include <span>
#include <vector>

namespace trireme {

/// One rank's place in a tree.
struct TreePlace {
  int parent = -1;              ///< -1: it is the root
  std::vector<int> children{};  ///< added in this order, sent to in the opposite one: the largest subtree is last
  int depth = 0;                ///< messages from the root to here
  int height = 0;               ///< of the whole tree: the same on every rank
  int first = 0;                ///< the tree's first block
  int blocks_per_segment = 1;   ///< its blocks are first, ..., first + segments * blocks_per_segment - 1
};

TreePlace star_place(int rank, int ranks, int root);
TreePlace path_place(int rank, int ranks, int root);
TreePlace binomial_place(int rank, int ranks, int root);

/// Ranks in the binomial subtree of `rank`: they follow it round the circle.
int subtree_size(int rank, int ranks, int root);

/// The root of each tree ends with the sum of the tree's blocks.
Program reduce_on_trees(std::span<const TreePlace> trees, int blocks, int segments = 1);

/// Every rank ends with what the root of each tree starts with.
Program broadcast_on_trees(std::span<const TreePlace> trees, int blocks, int segments = 1);

/// Every rank ends with the sum. Both directions are under way at once.
Program allreduce_on_trees(std::span<const TreePlace> trees, int blocks, int segments = 1);

}  // namespace trireme
