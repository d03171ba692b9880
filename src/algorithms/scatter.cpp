// Scatter: every rank ends with its block of the root's buffer.
//   direct  1 round; the root sends every rank its block
//   tree    floor(lg P) rounds along a binomial tree, in which a rank is sent all that its subtree needs: the root
//           sends lg P messages instead of P-1
// Thakur, Rabenseifner and Gropp, 2005.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"
#include "algorithms/trees.h"

namespace trireme {

Program direct_scatter(int rank, int ranks, int root) {
  const Circle circle{ranks};
  Program program{.blocks = ranks};
  for (int i = 1; rank == root && i < ranks; ++i) program.send(circle(root + i), circle(root + i));
  if (rank != root) program.receive(rank, root);
  return program;
}

Program tree_scatter(int rank, int ranks, int root) {
  const Circle circle{ranks};
  const TreePlace place = binomial_place(rank, ranks, root);
  Program program{.blocks = ranks};
  if (place.parent >= 0) {
    for (const Run run : circle.arc(rank, subtree_size(rank, ranks, root))) program.receive(run, place.parent);
  }
  for (auto child = place.children.rbegin(); child != place.children.rend(); ++child) {
    for (const Run run : circle.arc(*child, subtree_size(*child, ranks, root))) program.send(run, *child);
  }
  return program;
}

}  // namespace trireme
