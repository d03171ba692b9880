// Gather: the root ends with every rank's block.
//   direct  1 round; every rank sends its block to the root
//   tree    floor(lg P) rounds along a binomial tree, in which a rank sends all that its subtree holds: the root takes
//           lg P messages instead of P-1
// Thakur, Rabenseifner and Gropp, 2005.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"
#include "algorithms/trees.h"

namespace trireme {

Program direct_gather(int rank, int ranks, int root) {
  const Circle circle{ranks};
  Program program{.blocks = ranks};
  if (rank != root) program.send(rank, root);
  for (int i = 1; rank == root && i < ranks; ++i) program.receive(circle(root + i), circle(root + i));
  return program;
}

Program tree_gather(int rank, int ranks, int root) {
  const Circle circle{ranks};
  const TreePlace place = binomial_place(rank, ranks, root);
  Program program{.blocks = ranks};
  for (const int child : place.children) {
    for (const Run run : circle.arc(child, subtree_size(child, ranks, root))) program.receive(run, child);
  }
  if (place.parent >= 0) {
    for (const Run run : circle.arc(rank, subtree_size(rank, ranks, root))) program.send(run, place.parent);
  }
  return program;
}

}  // namespace trireme
