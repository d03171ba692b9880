#include "algorithms/parts.h"

#include <algorithm>

namespace trireme {
namespace {

Run segment(Run chunk, int index, int segments) {
  const int each = chunk.count / segments;
  return {chunk.first + index * each, each};
}

}  // namespace

std::vector<Run> Circle::arc(int first, int count) const {
  const int begin = (*this)(first);
  if (begin + count <= size) return {Run(begin, count)};
  return {Run(begin, size - begin), Run(0, begin + count - size)};
}

std::vector<int> prime_factors(int n) {
  std::vector<int> factors;
  for (int factor = 2; factor <= n / factor; ++factor) {
    for (; n % factor == 0; n /= factor) factors.push_back(factor);
  }
  if (n > 1) factors.push_back(n);
  return factors;
}

int squarest_divisor(int n) {
  int best = 1;
  for (int divisor = 1; divisor <= n / divisor; ++divisor) {
    if (n % divisor == 0) best = divisor;
  }
  return best;
}

void ring_reduce_scatter(Program& program, const RingPlace& ring, Chunks chunks, int segments) {
  const Circle circle{ring.size};
  for (int round = 0; round < ring.size - 1; ++round) {
    for (int i = 0; i < segments; ++i) {
      program.send(segment(chunks(circle(ring.at - round - 1)), i, segments), ring.next);
      program.add(segment(chunks(circle(ring.at - round - 2)), i, segments), ring.previous);
    }
  }
}

void ring_allgather(Program& program, const RingPlace& ring, Chunks chunks, int segments) {
  const Circle circle{ring.size};
  for (int round = 0; round < ring.size - 1; ++round) {
    for (int i = 0; i < segments; ++i) {
      program.send(segment(chunks(circle(ring.at - round)), i, segments), ring.next);
      program.receive(segment(chunks(circle(ring.at - round - 1)), i, segments), ring.previous);
    }
  }
}

// Every rank starts with another peer, so that no way in has more than one message at a time.
void direct_reduce_scatter(Program& program, int rank, int ranks) {
  const Circle circle{ranks};
  for (int i = 1; i < ranks; ++i) program.send(circle(rank + i), circle(rank + i));
  for (int i = 1; i < ranks; ++i) program.add(rank, circle(rank - i));
}

void direct_allgather(Program& program, int rank, int ranks) {
  const Circle circle{ranks};
  for (int i = 1; i < ranks; ++i) program.send(rank, circle(rank + i));
  for (int i = 1; i < ranks; ++i) program.receive(circle(rank - i), circle(rank - i));
}

// A rank is busy with the blocks of the `width` ranks from itself on. It hands the farther half to the rank that the
// half begins with, and takes as much from the other side, until only its own block is left.
void circulant_reduce_scatter(Program& program, int rank, int ranks) {
  const Circle circle{ranks};
  for (int width = ranks; width > 1;) {
    const int keep = (width + 1) / 2;
    const int give = width - keep;
    for (const Run run : circle.arc(rank + keep, give)) program.send(run, circle(rank + keep));
    for (const Run run : circle.arc(rank, give)) program.add(run, circle(rank - keep));
    width = keep;
  }
}

void circulant_allgather(Program& program, int rank, int ranks) {
  const Circle circle{ranks};
  std::vector<int> widths;
  for (int width = ranks; width > 1; width = (width + 1) / 2) widths.push_back(width);
  std::reverse(widths.begin(), widths.end());
  for (const int width : widths) {
    const int have = (width + 1) / 2;
    const int want = width - have;
    for (const Run run : circle.arc(rank, want)) program.send(run, circle(rank - have));
    for (const Run run : circle.arc(rank + have, want)) program.receive(run, circle(rank + have));
  }
}

Program halve_and_double(int place, const std::vector<int>& peers) {
  const int rounds = static_cast<int>(peers.size());
  Program program{.blocks = 1 << rounds};
  // The half with the rank's own block, and the other one, when each has `size` blocks.
  const auto own = [&](int size) { return Run(place / size * size, size); };
  const auto other = [&](int size) { return Run((place / size ^ 1) * size, size); };

  for (int round = 0; round < rounds; ++round) {
    const int size = program.blocks >> (round + 1);
    program.send(other(size), peers[round]);
    program.add(own(size), peers[round]);
  }
  for (int round = rounds - 1; round >= 0; --round) {
    const int size = program.blocks >> (round + 1);
    program.send(own(size), peers[round]);
    program.receive(other(size), peers[round]);
  }
  return program;
}

}  // namespace trireme
