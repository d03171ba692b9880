// The functions behind the registry's rows: each returns the program of one rank.
#pragma once

#include "trireme/packing.h"
#include "trireme/program.h"

namespace trireme {

Program parameter_server(int rank, int ranks);
Program fully_connected(int rank, int ranks);
Program chain(int rank, int ranks, int segments);
Program tree(int rank, int ranks);
Program recursive_doubling(int rank, int ranks);
Program halving_doubling(int rank, int ranks);
Program butterfly(int rank, int ranks);
Program ring(int rank, int ranks);
Program segmented_ring(int rank, int ranks, int segments);
Program double_binary_tree(int rank, int ranks, int segments);
Program hierarchical_ring(int rank, int ranks, int ranks_per_host, int segments);
Program torus(int rank, int ranks, int rows);
Program byteps(int rank, int ranks, int servers, int segments);
Program blink(int rank, int ranks, const TreePacking* packing, int segments);
Program swing(int rank, int ranks);

Program ring_reduce_scatter(int rank, int ranks);
Program bruck_reduce_scatter(int rank, int ranks);
Program direct_reduce_scatter(int rank, int ranks);

Program ring_allgather(int rank, int ranks);
Program bruck_allgather(int rank, int ranks);
Program direct_allgather(int rank, int ranks);

Program tree_broadcast(int rank, int ranks, int root);
Program scatter_allgather_broadcast(int rank, int ranks, int root);
Program chain_broadcast(int rank, int ranks, int root, int segments);

Program tree_reduce(int rank, int ranks, int root);
Program reduce_scatter_gather_reduce(int rank, int ranks, int root);
Program chain_reduce(int rank, int ranks, int root, int segments);

Program direct_gather(int rank, int ranks, int root);
Program tree_gather(int rank, int ranks, int root);

Program direct_scatter(int rank, int ranks, int root);
Program tree_scatter(int rank, int ranks, int root);

Program direct_all_to_all(int rank, int ranks);
Program factored_all_to_all(int rank, int ranks);

Program dissemination_barrier(int rank, int ranks);
Program tree_barrier(int rank, int ranks);

}  // namespace trireme
