// Swing: halving and doubling with peers at +1, -1, +3, -5, ... (odd ranks the other way round), so that on a ring or
// torus the large messages go to neighbours.
//   rounds  2 lg P, powers of two only: the peers of a round pair up all ranks only then
//   sent    2(P-1)/P of the buffer by every rank
//   result  the same bits on every rank
// De Sensi, Bonato, Saam and Hoefler, Swing: Short-cutting Rings for Higher Bandwidth Allreduce, NSDI 2024.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

#include <algorithm>

namespace trireme {
namespace {

// Where a rank's block must lie so that what it keeps after each round is one run.
//
// Let z be the rank, negative if odd, and v = 6z + 1. A round s turns v into -v - (-2)^(s+2): the rounds from s on
// leave v mod 2^(s+2) alone but for its sign. So the ranks that still share blocks before round s are those with the
// same +-v mod 2^(s+2), and round s tells apart two kinds of them, by +-v mod 2^(s+3). Each such bit halves the run.
// The last round is between an even rank and an odd one.
int place_of(int rank, int rounds) {
  if (rounds == 0) return 0;
  const bool odd = rank % 2 != 0;
  const long v = 6L * (odd ? -rank : rank) + 1;
  int place = 0;
  for (int round = 0; round < rounds - 1; ++round) {
    const long modulus = 1L << (round + 3);
    const long residue = (v % modulus + modulus) % modulus;
    const long without_sign = std::min(residue, modulus - residue);
    place = 2 * place + (without_sign > modulus / 4 ? 1 : 0);
  }
  return 2 * place + (odd ? 1 : 0);
}

}  // namespace

Program swing(int rank, int ranks) {
  const Circle circle{ranks};
  const int rounds = floor_log2(ranks);
  std::vector<int> peers;
  for (int round = 0, distance = 1; round < rounds; ++round, distance = 1 - 2 * distance) {
    peers.push_back(circle(rank % 2 == 0 ? rank + distance : rank - distance));
  }
  return halve_and_double(place_of(rank, rounds), peers);
}

}  // namespace trireme
