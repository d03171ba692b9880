// Broadcast: every rank ends with the root's buffer.
//   tree               floor(lg P) rounds; the root sends the whole buffer ceil(lg P) times
//   scatter_allgather  1 + ceil(lg 2P/3) rounds; the root deals out one block a rank, then all gather: 2(P-1)/P buffers
//   chain              P-1 rounds for the first segment; every rank sends the buffer once, in a pipeline
// Thakur, Rabenseifner and Gropp, 2005; van de Geijn, J. Parallel Distrib. Comput. 22(2), 1994.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"
#include "algorithms/trees.h"

namespace trireme {

Program tree_broadcast(int rank, int ranks, int root) {
  const TreePlace place = binomial_place(rank, ranks, root);
  return broadcast_on_trees({&place, 1}, 1);
}

Program scatter_allgather_broadcast(int rank, int ranks, int root) {
  Program program = direct_scatter(rank, ranks, root);
  circulant_allgather(program, rank, ranks);
  return program;
}

Program chain_broadcast(int rank, int ranks, int root, int segments) {
  const TreePlace place = path_place(rank, ranks, root);
  return broadcast_on_trees({&place, 1}, segments, segments);
}

}  // namespace trireme
