// Recursive doubling: in round k, ranks whose numbers differ in bit k exchange everything and both add.
//   rounds  lg P; if P is no power of two, one or two more: the ranks beyond it hand theirs in first and get the sum
//           last
//   sent    one buffer a round
//   result  the same bits on every rank, since addition commutes
// Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19(1), 2005.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program recursive_doubling(int rank, int ranks) {
  const int core = floor_power_of_two(ranks);
  Program program{.blocks = 1};
  if (rank >= core) {
    program.send(0, rank - core);
    program.receive(0, rank - core);
    return program;
  }
  const bool has_guest = rank + core < ranks;
  if (has_guest) program.add(0, rank + core);
  for (int bit = 1; bit < core; bit *= 2) {
    program.send(0, rank ^ bit);
    program.add(0, rank ^ bit);
  }
  if (has_guest) program.send(0, rank + core);
  return program;
}

}  // namespace trireme
