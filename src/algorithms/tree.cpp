// Tree: a binomial tree reduces to rank 0 and broadcasts from it.
//   rounds  2 floor(lg P), any P >= 1
//   sent    ceil(lg P) buffers by the root, fewer by the others
//   result  the same bits on every rank
// Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005.
#include "algorithms/algorithms.h"
#include "algorithms/trees.h"

namespace trireme {

Program tree(int rank, int ranks) {
  const TreePlace place = binomial_place(rank, ranks, 0);
  return allreduce_on_trees({&place, 1}, 1);
}

}  // namespace trireme
