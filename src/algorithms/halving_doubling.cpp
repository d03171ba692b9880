// Halving and doubling: reduce-scatter by halving the buffer with peer after peer, allgather by doubling it back.
//   rounds  2 ceil(lg 2P/3), any P >= 1: in 2 ceil(lg P) exchanges, not all of which wait for the one before
//   sent    2(P-1)/P of the buffer by every rank
//   result  the same bits on every rank
// A power of two: Rabenseifner, ICCS 2004; the nearest peers get the largest messages. Others: the same halving round a
// circle, where the rank at half the distance rounded up takes over, so that no rank sits out and nothing is sent
// twice; Traff, arXiv:2410.14234, 2024.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program halving_doubling(int rank, int ranks) {
  if (is_power_of_two(ranks)) {
    // The first peer settles which half of the buffer a rank keeps: so its block's place is its number read backwards.
    std::vector<int> peers;
    int place = 0;
    for (int bit = 1; bit < ranks; bit *= 2) {
      peers.push_back(rank ^ bit);
      place = 2 * place + ((rank & bit) != 0 ? 1 : 0);
    }
    return halve_and_double(place, peers);
  }
  Program program{.blocks = ranks};
  circulant_reduce_scatter(program, rank, ranks);
  circulant_allgather(program, rank, ranks);
  return program;
}

}  // namespace trireme
