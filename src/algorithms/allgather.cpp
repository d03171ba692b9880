// Allgather: every rank starts with its own block and ends with all.
//   ring    P-1 rounds, (P-1)/P of the buffer sent, all of it to the next rank
//   bruck   ceil(lg 2P/3) rounds, (P-1)/P of the buffer sent
//   direct  1 round, (P-1)/P of the buffer sent, in P-1 messages
// Bruck, Ho, Kipnis, Upfal and Weathersby, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program ring_allgather(int rank, int ranks) {
  const Circle circle{ranks};
  Program program{.blocks = ranks};
  ring_allgather(program, {ranks, rank, circle(rank - 1), circle(rank + 1)}, Chunks{});
  return program;
}

Program bruck_allgather(int rank, int ranks) {
  Program program{.blocks = ranks};
  circulant_allgather(program, rank, ranks);
  return program;
}

Program direct_allgather(int rank, int ranks) {
  Program program{.blocks = ranks};
  direct_allgather(program, rank, ranks);
  return program;
}

}  // namespace trireme
