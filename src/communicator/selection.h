// Which algorithm a call runs by, and why: one that was asked for, or the fastest for its size by what is known of the
// machine and its network. All ranks come to the same answer, since all know the same.
#pragma once

#include "communicator/tuning.h"
#include "trireme/algorithms.h"
#include "trireme/choose.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace trireme {

/// Whether every rank has a core of its own, or all are on one machine that has fewer.
enum class Cores : std::uint8_t { enough, shared };

/// Sizes up to the same power of two are of one class: what is chosen for one is chosen for all of them, whichever comes
/// first.
inline int size_class(std::size_t bytes) {
  return static_cast<int>(std::bit_width(std::bit_ceil(std::max<std::size_t>(1, bytes))));
}

struct Pick {
  const Algorithm* algorithm = nullptr;
  Setting setting;
  std::string why;
};

class Selector {
 public:
  /// `hosts`: by rank; ranks with the same number share memory. `forced`: names as TRIREME_ALGORITHM lists them,
  /// separated by commas; each overrules the choice for its collective. Throws UsageError for a name that is not known.
  Selector(std::span<const int> hosts, Tuning tuning, std::string_view forced, Cores cores = Cores::enough);

  /// `asked`: a name that the call itself gives; empty: none. Throws UsageError if it is not known, is of another
  /// collective, or can't run on so many ranks. What it returns stays as it is.
  const Pick& pick(Collective collective, std::size_t bytes, std::string_view asked);

  /// Only algorithms that send each share straight to where it belongs: others can't have shares of different sizes.
  const Pick& pick_direct(Collective collective);

  /// The network between the ranks, for the simulator.
  Topology topology() const;

  const Tuning& tuning() const { return tuning_; }

  /// What a candidate of choose() takes here.
  Seconds expected(const Candidate& candidate) const;

 private:
  Pick by_name(Collective collective, std::string_view name, std::string why) const;
  Pick fastest(Collective collective, std::size_t bytes) const;
  Pick on_one_host(Collective collective, std::size_t bytes) const;
  Pick between_hosts(Collective collective, std::size_t bytes) const;

  int ranks_;
  int ranks_per_host_;  ///< 0: hosts differ, or have ranks that are not neighbours
  bool one_host_;
  Tuning tuning_;
  Cores cores_;
  std::map<Collective, std::string> forced_;
  std::map<std::pair<Collective, std::string>, Pick> named_;
  std::map<std::pair<Collective, int>, Pick> chosen_;  ///< by collective and size class
};

}  // namespace trireme
