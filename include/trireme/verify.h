// The verifier: proves, for a given number of ranks, that the programs of an algorithm together keep the promise of
// their collective.
//
// It runs the programs on symbols instead of numbers: a value is the tree of additions that made it. What it proves
// holds for every timing, since the order of steps on one block and of messages on one channel is fixed by the
// programs.
#pragma once

#include "trireme/program.h"

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

/// What is wrong, and where. Numbers that don't apply are -1.
struct Finding {
  int rank = -1;
  int step = -1;  ///< index into the rank's program
  int block = -1;
  std::string message;  ///< one line, which names rank, step and block
};

struct Proof {
  std::optional<Finding> finding;  ///< empty: proven

  /// The rest is meaningful only when proven.
  bool same_bits = false;  ///< every rank that ends with a value added it up in the same order
  int rounds = 0;          ///< messages along the longest chain of dependencies
  double sent = 0;         ///< the most that any rank sends, in buffers
  std::uint64_t steps = 0;
  std::uint64_t messages = 0;

  bool proven() const { return !finding.has_value(); }
};

/// Blocks of all ranks and of all their steps, and pairs of ranks, beyond which a proof is refused: it would take
/// several gigabytes.
inline constexpr std::int64_t kMostProofValues = std::int64_t{1} << 25;

/// Proves the schedule or finds the first thing wrong with it. Never throws for a wrong schedule; UsageError for one
/// too large to prove.
Proof verify(const Schedule& schedule);

}  // namespace trireme
