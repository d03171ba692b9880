// Parameter server: one rank adds up what everyone sends, then sends everyone the sum.
//   rounds  2, any P >= 1
//   sent    P-1 buffers by the server, 1 by each other rank; the server's link carries everything
//   result  the same bits on every rank
// Li et al., Scaling Distributed Machine Learning with the Parameter Server, OSDI 2014.
#include "algorithms/algorithms.h"
#include "algorithms/trees.h"

namespace trireme {

Program parameter_server(int rank, int ranks) {
  const TreePlace place = star_place(rank, ranks, 0);
  return allreduce_on_trees({&place, 1}, 1);
}

}  // namespace trireme
