// The registry: every algorithm Trireme knows, one row each.
#pragma once

#include "trireme/packing.h"
#include "trireme/program.h"
#include "trireme/verify.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// What an algorithm may be told. Each reads only what concerns it.
struct Setting {
  int ranks = 1;           ///< those that contribute and want the result
  int root = 0;            ///< of broadcast, reduce, gather and scatter
  int segments = 1;        ///< pieces that a pipelined algorithm cuts its blocks into
  int ranks_per_host = 0;  ///< consecutive ranks that share a host; 0: as near to the square root as it gets
  int rows = 0;            ///< of a torus; 0: the largest divisor up to the square root
  int servers = 1;         ///< extra ranks that only serve (byteps)
  std::shared_ptr<const TreePacking> trees = nullptr;  ///< what blink packed; empty: one star a rank
};

/// A figure that an algorithm claims: as a formula for people, and as a function for the verifier.
struct Claim {
  std::string_view text;
  double (*value)(const Setting&);
};

struct Algorithm {
  std::string_view name;
  Collective collective;
  Program (*program)(int rank, const Setting&);
  Claim rounds;  ///< messages along the longest chain of dependencies; each further segment adds one at most
  Claim sent;    ///< the most that any rank sends, in buffers
  std::string_view description;
  std::string_view reference;
  std::string_view takes = "any P";  ///< the rank counts, for people
  bool (*accepts)(int ranks) = [](int) { return true; };
  bool segmented = false;  ///< reads Setting::segments
  bool served = false;     ///< has Setting::servers extra ranks
  bool same_bits = true;   ///< on all ranks that have the result; false: on two ranks only
};

/// All rows: allreduce first, then the other collectives in the order of Collective.
std::span<const Algorithm> algorithms();

/// The rows of one collective.
std::span<const Algorithm> algorithms(Collective collective);

/// The row called "ring" (allreduce before the others) or "broadcast/tree". Throws UsageError that suggests the
/// nearest.
const Algorithm& find_algorithm(std::string_view name);

/// The row's name as find_algorithm() takes it without doubt: "ring", "broadcast/tree".
std::string full_name(const Algorithm& algorithm);

/// Throws UsageError unless the algorithm can run in this setting.
void check(const Algorithm& algorithm, const Setting& setting);

/// Ranks that the algorithm's programs are for: the setting's, and the servers if it uses any.
int total_ranks(const Algorithm& algorithm, const Setting& setting);

/// The programs of all ranks.
Schedule make_schedule(const Algorithm& algorithm, const Setting& setting);

/// What a row claims but its programs, once proven, do not do; empty if they do it all.
std::string broken_claim(const Algorithm& algorithm, const Setting& setting, const Proof& proof);

/// The ranks beyond which Trireme refuses to go: a schedule's numbers must fit an int.
inline constexpr int kMostRanks = 1 << 20;

}  // namespace trireme
