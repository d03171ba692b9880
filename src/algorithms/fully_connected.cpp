// Fully connected: everyone sends everything to everyone, and each adds up for itself.
//   rounds  1, any P >= 1
//   sent    P-1 buffers by every rank
//   result  each rank adds in another order, so from P = 3 on the bits may differ
// The fewest rounds there can be; Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program fully_connected(int rank, int ranks) {
  const Circle circle{ranks};
  Program program{.blocks = 1};
  for (int i = 1; i < ranks; ++i) program.send(0, circle(rank + i));
  for (int i = 1; i < ranks; ++i) program.add(0, circle(rank - i));
  return program;
}

}  // namespace trireme
