// Blink: allreduce along spanning trees packed into the machine's links, each with a share that its links can carry.
//   rounds  twice the height of the highest tree for the first segment, any P >= 1
//   sent    what the packing says; without a graph of links one star a rank, which is the butterfly
//   result  the same bits on every rank
// Wang et al., Blink: Fast and Generic Collectives for Distributed ML, MLSys 2020.
#include "algorithms/algorithms.h"
#include "algorithms/trees.h"

namespace trireme {

Program blink(int rank, int ranks, const TreePacking* packing, int segments) {
  // With nothing to tell links apart the best trees are one star a rank: the butterfly.
  if (packing == nullptr) return butterfly(rank, ranks);
  std::vector<TreePlace> places;
  int first = 0;
  for (const PackedTree& packed : packing->trees) {
    TreePlace place{.parent = packed.parent[rank],
                    .depth = packed.depth(rank),
                    .height = packed.height(),
                    .first = first,
                    .blocks_per_segment = packed.blocks};
    for (int child = 0; child < ranks; ++child) {
      if (packed.parent[child] == rank) place.children.push_back(child);
    }
    places.push_back(std::move(place));
    first += packed.blocks * segments;
  }
  return allreduce_on_trees(places, packing->blocks * segments, segments);
}

}  // namespace trireme
