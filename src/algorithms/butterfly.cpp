// Butterfly: every rank owns one block, adds up what all others send of it, and sends all others the sum.
//   rounds  2, any P >= 1
//   sent    2(P-1)/P of the buffer by every rank, in 2(P-1) messages
//   result  the same bits on every rank
// The direct reduce-scatter and allgather of Thakur, Rabenseifner and Gropp, 2005; what BytePS does without servers.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program butterfly(int rank, int ranks) {
  Program program{.blocks = ranks};
  direct_reduce_scatter(program, rank, ranks);
  direct_allgather(program, rank, ranks);
  return program;
}

}  // namespace trireme
