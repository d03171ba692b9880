// Segmented ring: the ring, with each block cut into segments, so that a rank adds one while the next is on its way.
//   rounds  2(P-1) for the first segment, any P >= 1
//   sent    2(P-1)/P of the buffer by every rank, all of it to the next rank
//   result  the same bits on every rank
// Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009; Open MPI's ring_segmented.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program segmented_ring(int rank, int ranks, int segments) {
  const Circle circle{ranks};
  const RingPlace place{.size = ranks, .at = rank, .previous = circle(rank - 1), .next = circle(rank + 1)};
  const Chunks chunks{.each = segments};
  Program program{.blocks = ranks * segments};
  ring_reduce_scatter(program, place, chunks, segments);
  ring_allgather(program, place, chunks, segments);
  return program;
}

}  // namespace trireme
