#include "algorithms/trees.h"

#include "algorithms/parts.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace trireme {
namespace {

// A message's beat is the same at both of its ends, and every rank takes its steps by beat, then up before down, then
// by tree. So two ranks that are neighbours in several trees agree on the order of their messages. Segment i comes up
// from depth d in beat i + height - d, and comes down to depth d in beat i + height + d - 1: no beat is idle, and a
// message needs only what came in earlier ones, so that there are no more rounds than beats, whatever the trees.
struct Beat {
  enum Kind { to_parent, to_children, from_children, from_parent };

  int beat;
  Kind kind;
  int tree;
  int segment;

  bool operator<(const Beat& other) const {
    return std::tie(beat, kind, tree, segment) < std::tie(other.beat, other.kind, other.tree, other.segment);
  }
};

void take(Program& program, const Beat& beat, const TreePlace& place) {
  const Run run(place.first + beat.segment * place.blocks_per_segment, place.blocks_per_segment);
  switch (beat.kind) {
    case Beat::to_parent: program.send(run, place.parent); break;
    case Beat::from_parent: program.receive(run, place.parent); break;
    case Beat::from_children:
      for (const int child : place.children) program.add(run, child);
      break;
    case Beat::to_children:
      for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) program.send(run, *child);
      break;
  }
}

Program on_trees(std::span<const TreePlace> trees, int blocks, int segments, bool up, bool down) {
  std::vector<Beat> beats;
  for (int tree = 0; tree < static_cast<int>(trees.size()); ++tree) {
    const auto& [parent, children, depth, height, first, each] = trees[tree];
    for (int segment = 0; segment < segments; ++segment) {
      const int rise = segment + height - depth;
      const int fall = segment + height + depth - 1;
      if (up && parent >= 0) beats.push_back({rise, Beat::to_parent, tree, segment});
      if (up && !children.empty()) beats.push_back({rise - 1, Beat::from_children, tree, segment});
      if (down && parent >= 0) beats.push_back({fall, Beat::from_parent, tree, segment});
      if (down && !children.empty()) beats.push_back({fall + 1, Beat::to_children, tree, segment});
    }
  }
  std::sort(beats.begin(), beats.end());
  Program program{.blocks = blocks};
  for (const Beat& beat : beats) take(program, beat, trees[beat.tree]);
  return program;
}

}  // namespace

TreePlace star_place(int rank, int ranks, int root) {
  if (rank != root) return {.parent = root, .depth = 1, .height = 1};
  TreePlace place{.height = 1};
  for (int i = 1; i < ranks; ++i) place.children.push_back(Circle{ranks}(root + i));
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
  return on_trees(trees, blocks, segments, true, false);
}

Program broadcast_on_trees(std::span<const TreePlace> trees, int blocks, int segments) {
  return on_trees(trees, blocks, segments, false, true);
}

Program allreduce_on_trees(std::span<const TreePlace> trees, int blocks, int segments) {
  return on_trees(trees, blocks, segments, true, true);
}

}  // namespace trireme
