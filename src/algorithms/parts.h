// What several algorithms are made of.
#pragma once

#include "trireme/program.h"

#include <bit>
#include <vector>

namespace trireme {

/// Ranks or blocks in a circle: circle(-1) is the last, circle(size) the first.
struct Circle {
  int size;
  int operator()(int i) const { return (i % size + size) % size; }

  /// The run of `count` from `first` on round the circle, in one piece or two.
  std::vector<Run> arc(int first, int count) const;
};

inline int floor_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1; }
inline int ceil_log2(int n) { return static_cast<int>(std::bit_width(static_cast<unsigned>(n) - 1)); }
inline int floor_power_of_two(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }
inline bool is_power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(n)); }

/// The prime factors of n in ascending order; none for 1.
std::vector<int> prime_factors(int n);

/// The largest divisor of n that is at most its square root.
int squarest_divisor(int n);

/// Equal pieces of a buffer, one after another.
struct Chunks {
  int first = 0;
  int each = 1;
  Run operator()(int i) const { return {first + i * each, each}; }
};

/// One rank's place on a ring of `size`. Chunk i of the ring belongs to the rank at place i.
struct RingPlace {
  int size;
  int at;
  int previous, next;  ///< the ranks beside it
};

/// Each rank of the ring ends with the sum of its own chunk, after size - 1 rounds. A chunk travels in `segments`
/// pieces.
void ring_reduce_scatter(Program& program, const RingPlace& ring, Chunks chunks, int segments = 1);

/// Each rank starts with its own chunk finished and ends with all, after size - 1 rounds.
void ring_allgather(Program& program, const RingPlace& ring, Chunks chunks, int segments = 1);

/// Each rank ends with the sum of block `rank`, after one round: it hears from everyone.
void direct_reduce_scatter(Program& program, int rank, int ranks);

/// Each rank tells everyone its block `rank`, in one round.
void direct_allgather(Program& program, int rank, int ranks);

/// Each rank ends with the sum of block `rank`, in ceil(lg P) exchanges, for any number of ranks.
void circulant_reduce_scatter(Program& program, int rank, int ranks);

/// Each rank starts with block `rank` finished and ends with all, in ceil(lg P) exchanges.
void circulant_allgather(Program& program, int rank, int ranks);

/// Halves the buffer with one peer after another, then doubles it back; P is a power of two. `place` is where the
/// rank's own block lies; the peer of a round must own a block in the other half.
Program halve_and_double(int place, const std::vector<int>& peers);

}  // namespace trireme
