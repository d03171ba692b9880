// Ring allreduce: partial sums travel once round the ring, then finished blocks travel once more.
//   rounds  2(P-1), any P >= 1
//   sent    2(P-1)/P of the buffer by every rank, all of it to the next rank
//   result  the same bits on every rank
// Patarasuk and Yuan, J. Parallel Distrib. Comput. 69(2), 2009.
#include "algorithms/algorithms.h"

namespace trireme {

Program ring(int rank, int ranks) { return segmented_ring(rank, ranks, 1); }

}  // namespace trireme
