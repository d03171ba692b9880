// Chain: partial sums move down the ranks to rank 0, the sum moves back up, cut into segments that follow each other.
//   rounds  2(P-1) for the first segment, any P >= 1
//   sent    2 buffers by a rank in the middle, 1 by those at the ends
//   result  the same bits on every rank
// Pjesivac-Grbovic et al., Performance Analysis of MPI Collective Operations, Cluster Computing 10(2), 2007.
#include "algorithms/algorithms.h"
#include "algorithms/trees.h"

namespace trireme {

Program chain(int rank, int ranks, int segments) {
  const TreePlace place = path_place(rank, ranks, 0);
  return allreduce_on_trees({&place, 1}, segments, segments);
}

}  // namespace trireme
