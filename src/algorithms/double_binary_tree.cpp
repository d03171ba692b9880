// Double binary tree: two trees, each for half of the buffer, in which the inner ranks of one are leaves of the other.
//   rounds  2 floor(lg P) for the first segment, any P >= 1
//   sent    at most 2 buffers, in a pipeline: every rank is busy both ways at once
//   result  the same bits on every rank
// Sanders, Speck and Traff, Parallel Computing 35(12), 2009; NCCL since 2.4.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"
#include "algorithms/trees.h"

namespace trireme {
namespace {

// A tree over `size` positions from `first` on, in order, with its leaves at the even ones: `first` is even, and the
// left part has an odd size.
struct Span {
  int first, size;

  int left_size() const { return (size - 1) / 2 | 1; }
  int root() const { return size == 1 ? first : first + left_size(); }
  Span left() const { return {first, left_size()}; }
  Span right() const { return {root() + 1, size - 1 - left_size()}; }
};

TreePlace place_in_order(int position, int size) {
  TreePlace place{.height = floor_log2(size)};
  Span span{0, size};
  while (position != span.root()) {
    place.parent = span.root();
    ++place.depth;
    span = position < span.root() ? span.left() : span.right();
  }
  if (span.size > 1) place.children.push_back(span.left().root());
  if (span.size > 2) place.children.push_back(span.right().root());
  return place;
}

}  // namespace

Program double_binary_tree(int rank, int ranks, int segments) {
  const Circle circle{ranks};
  // The second tree is the first one mirrored (even P) or turned by one (odd P): either changes odd into even.
  const auto turn = [&](int position, int by) { return ranks % 2 == 0 ? ranks - 1 - position : circle(position + by); };
  TreePlace first = place_in_order(rank, ranks);
  TreePlace second = place_in_order(turn(rank, -1), ranks);
  if (second.parent >= 0) second.parent = turn(second.parent, 1);
  for (int& child : second.children) child = turn(child, 1);
  second.first = segments;
  const TreePlace trees[] = {first, second};
  return allreduce_on_trees(trees, 2 * segments, segments);
}

}  // namespace trireme
