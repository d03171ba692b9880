// Hierarchical ring: each host's ranks reduce along a chain to their leader, the leaders form a ring, the sum goes back
// along the chains. Only leaders use the links between hosts.
//   rounds  2(G-1) + 2(H-1) for the first segment, with G ranks a host and H hosts; any P, any G >= 1
//   sent    1 + 2(H-1)/H buffers by a leader, of which 2(H-1)/H leave the host; at most 2 by the others
//   result  the same bits on every rank
// Hierarchical allreduce as in Jia et al., arXiv:1807.11205, 2018.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

#include <algorithm>

namespace trireme {

Program hierarchical_ring(int rank, int ranks, int ranks_per_host, int segments) {
  const int hosts = (ranks + ranks_per_host - 1) / ranks_per_host;
  const int host = rank / ranks_per_host;
  const int leader = host * ranks_per_host;
  const bool leads = rank == leader;
  const bool has_follower = rank + 1 < std::min(leader + ranks_per_host, ranks);
  const Circle circle{hosts};
  const int next = circle(host + 1) * ranks_per_host;
  const int previous = circle(host - 1) * ranks_per_host;
  Program program{.blocks = hosts * segments};

  const auto block_of = [&](int chunk, int segment) { return circle(chunk) * segments + segment; };
  const auto take_up = [&](int block) {
    if (has_follower) program.add(block, rank + 1);
    if (!leads) program.send(block, rank - 1);
  };
  const auto hand_down = [&](int block) {
    if (!leads) program.receive(block, rank - 1);
    if (has_follower) program.send(block, rank + 1);
  };

  // Chunks come up the chain in the order in which the leader's ring wants them, and go down as the ring ends with
  // them.
  for (int i = 0; i < segments; ++i) take_up(block_of(host - 1, i));
  for (int round = 0; round < hosts - 1; ++round) {
    for (int i = 0; i < segments; ++i) {
      take_up(block_of(host - round - 2, i));
      if (!leads) continue;
      program.send(block_of(host - round - 1, i), next);
      program.add(block_of(host - round - 2, i), previous);
    }
  }
  for (int round = 0; round < hosts - 1; ++round) {
    for (int i = 0; i < segments; ++i) {
      if (leads) program.send(block_of(host - round, i), next);
      hand_down(block_of(host - round, i));
      if (leads) program.receive(block_of(host - round - 1, i), previous);
    }
  }
  for (int i = 0; i < segments; ++i) hand_down(block_of(host + 1, i));
  return program;
}

}  // namespace trireme
