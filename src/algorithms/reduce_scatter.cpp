// Reduce-scatter: every rank ends with the sum of its own block.
//   ring    P-1 rounds, (P-1)/P of the buffer sent, all of it to the next rank
//   bruck   ceil(lg 2P/3) rounds, (P-1)/P of the buffer sent: the fewest bytes in the fewest rounds that one port
//           allows
//   direct  1 round, (P-1)/P of the buffer sent, in P-1 messages
// Thakur, Rabenseifner and Gropp, 2005; the second is Bruck's allgather backwards: Traff, arXiv:2410.14234, 2024.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program ring_reduce_scatter(int rank, int ranks) {
  const Circle circle{ranks};
  Program program{.blocks = ranks};
  ring_reduce_scatter(program, {ranks, rank, circle(rank - 1), circle(rank + 1)}, Chunks{});
  return program;
}

Program bruck_reduce_scatter(int rank, int ranks) {
  Program program{.blocks = ranks};
  circulant_reduce_scatter(program, rank, ranks);
  return program;
}

Program direct_reduce_scatter(int rank, int ranks) {
  Program program{.blocks = ranks};
  direct_reduce_scatter(program, rank, ranks);
  return program;
}

}  // namespace trireme
