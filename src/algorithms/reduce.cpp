// Reduce: the root ends with the sum.
//   tree                   floor(lg P) rounds, every other rank sends its buffer once
//   reduce_scatter_gather  ceil(lg 2P/3) + 1 rounds; each rank adds up one block and hands it to the root: 1 buffer
//   chain                  P-1 rounds for the first segment; every rank sends the buffer once, in a pipeline
// Thakur, Rabenseifner and Gropp, 2005; Rabenseifner, ICCS 2004.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"
#include "algorithms/trees.h"

namespace trireme {

Program tree_reduce(int rank, int ranks, int root) {
  const TreePlace place = binomial_place(rank, ranks, root);
  return reduce_on_trees({&place, 1}, 1);
}

Program reduce_scatter_gather_reduce(int rank, int ranks, int root) {
  Program program = bruck_reduce_scatter(rank, ranks);
  const Program last = direct_gather(rank, ranks, root);
  program.steps.insert(program.steps.end(), last.steps.begin(), last.steps.end());
  return program;
}

Program chain_reduce(int rank, int ranks, int root, int segments) {
  const TreePlace place = path_place(rank, ranks, root);
  return reduce_on_trees({&place, 1}, segments, segments);
}

}  // namespace trireme
