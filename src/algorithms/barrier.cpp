// Barrier: no rank ends before it has heard of every rank. What is sent has no content; hearing of a rank twice is
// fine.
//   dissemination  ceil(lg P) rounds; in round k each rank tells the one 2^k further on all that it has heard
//   tree           2 floor(lg P) rounds up and down a binomial tree, with the fewest messages: 2(P-1)
// Hensgen, Finkel and Manber, Int. J. Parallel Program. 17(1), 1988.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program dissemination_barrier(int rank, int ranks) {
  const Circle circle{ranks};
  Program program{.blocks = 1};
  for (int distance = 1; distance < ranks; distance *= 2) {
    program.send(0, circle(rank + distance));
    program.add(0, circle(rank - distance));
  }
  return program;
}

Program tree_barrier(int rank, int ranks) { return tree(rank, ranks); }

}  // namespace trireme
