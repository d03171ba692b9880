#include "algorithms/trees.h"

#include <algorithm>
#include <bit>

#include "algorithms/parts.h"

namespace trireme {
namespace {

// A message's beat is the same at both of its ends, and every rank takes its steps by beat, then up before down, then by
// tree. So two ranks that are neighbours in several trees agree on the order of their messages. Segment i comes up from
// depth d in beat i + height - d, and comes down to depth d in beat i + height + d - 1: no beat is idle, and a message
// needs only what came in earlier ones, so that there are no more rounds than beats, whatever the trees.
class Beats {
 public:
  Beats(std::span<const TreePlace> trees, int blocks, int segments)
      : trees_(trees), segments_(segments), program_{.blocks = blocks} {}

  Program run(bool up, bool down) {
    int last = 0;
    for (const TreePlace& place : trees_) last = std::max(last, 2 * place.height + segments_ - 1);
    for (int beat = 0; beat < last; ++beat) {
      for (const TreePlace& place : trees_) {
        if (up) to_parent(place, beat - place.height + place.depth);
      }
      for (const TreePlace& place : trees_) {
        if (down) to_children(place, beat - place.height - place.depth);
      }
      for (const TreePlace& place : trees_) {
        if (up) from_children(place, beat - place.height + place.depth + 1);
      }
      for (const TreePlace& place : trees_) {
        if (down) from_parent(place, beat - place.height - place.depth + 1);
      }
    }
    return std::move(program_);
  }

 private:
  bool exists(int segment) const { return segment >= 0 && segment < segments_; }

  static Run run_of(const TreePlace& place, int segment) {
    return {place.first + segment * place.blocks_per_segment, place.blocks_per_segment};
  }

  void to_parent(const TreePlace& place, int segment) {
    if (exists(segment) && place.parent >= 0) program_.send(run_of(place, segment), place.parent);
  }

  void from_parent(const TreePlace& place, int segment) {
    if (exists(segment) && place.parent >= 0) program_.receive(run_of(place, segment), place.parent);
  }

  void from_children(const TreePlace& place, int segment) {
    if (!exists(segment)) return;
    for (const int child : place.children) program_.add(run_of(place, segment), child);
  }

  void to_children(const TreePlace& place, int segment) {
    if (!exists(segment)) return;
    for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
      program_.send(run_of(place, segment), *child);
    }
  }

  std::span<const TreePlace> trees_;
  int segments_;
  Program program_;
};

}  // namespace

TreePlace star_place(int rank, int ranks, int root) {
  if (rank != root) return {.parent = root, .depth = 1, .height = 1};
  TreePlace place{.height = 1};
  for (int i = ranks - 1; i > 0; --i) place.children.push_back(Circle{ranks}(root + i));
  return place;
}

TreePlace path_place(int rank, int ranks, int root) {
  const Circle circle{ranks};
  TreePlace place{.depth = circle(rank - root), .height = ranks - 1};
  if (place.depth > 0) place.parent = circle(rank - 1);
  if (place.depth < ranks - 1) place.children = {circle(rank + 1)};
  return place;
}

// Counted from the root, the parent of a rank is the rank without its lowest bit.
TreePlace binomial_place(int rank, int ranks, int root) {
  const Circle circle{ranks};
  const int place = circle(rank - root);
  TreePlace result{.depth = std::popcount(static_cast<unsigned>(place)), .height = floor_log2(ranks)};
  int bit = 1;
  for (; bit < ranks && (place & bit) == 0; bit *= 2) {
    if (place + bit < ranks) result.children.push_back(circle(root + place + bit));
  }
  if (place > 0) result.parent = circle(root + place - bit);
  return result;
}

int subtree_size(int rank, int ranks, int root) {
  const int place = Circle{ranks}(rank - root);
  return place == 0 ? ranks : std::min(place & -place, ranks - place);
}

Program reduce_on_trees(std::span<const TreePlace> trees, int blocks, int segments) {
  return Beats(trees, blocks, segments).run(true, false);
}

Program broadcast_on_trees(std::span<const TreePlace> trees, int blocks, int segments) {
  return Beats(trees, blocks, segments).run(false, true);
}

Program allreduce_on_trees(std::span<const TreePlace> trees, int blocks, int segments) {
  return Beats(trees, blocks, segments).run(true, true);
}

}  // namespace trireme
