// Selection: which algorithm, with how many segments, is the fastest for so many ranks and bytes on a network; and what
// the fixed rules of other libraries would have taken.
#pragma once

#include "trireme/algorithms.h"
#include "trireme/network.h"
#include "trireme/simulate.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// An algorithm as it would run, and what it costs.
struct Candidate {
  const Algorithm* algorithm;
  Setting setting;
  Simulated cost;
};

/// An algorithm that was not simulated, and why.
struct LeftOut {
  const Algorithm* algorithm;
  std::string why;
  Seconds least{0};  ///< it can't be faster than this; 0: it can't run here, or nothing is known
};

struct Choice {
  std::vector<Candidate> candidates;  ///< each with its best segment count, the fastest first
  std::vector<LeftOut> left_out;
  std::string reason;  ///< a few sentences for people

  const Candidate& best() const { return candidates.front(); }
};

/// What there is to choose for.
struct Situation {
  const Topology* topology;
  Collective collective = Collective::allreduce;
  Setting setting;  ///< ranks, root, servers; segments are chosen
  std::uint64_t bytes = 0;
  double reduce_rate = 8e9;
  std::uint64_t segment_bytes = 0;  ///< as in SimulateOptions
  int most_segments = 128;          ///< to try for algorithms that cut their blocks
  bool with_servers = false;        ///< there are ranks to spare for algorithms that need servers
};

/// Simulates every algorithm that can run, with 1, 2, 4, ..., 128 segments where it has any. Progress as in simulate().
Choice choose(const Situation& situation, const std::function<void(double)>& progress = {});

/// One algorithm with its fastest segment count: the smallest within 1 % of the best.
Candidate best_segments(const Algorithm& algorithm, const Situation& situation);

/// What a library's fixed rules take for allreduce of float32.
struct Policy {
  std::string_view name;                                     ///< openmpi or mpich
  std::string_view source;                                   ///< where the rules come from
  std::string_view (*rule)(int ranks, std::uint64_t bytes);  ///< the algorithm's name here
};

const std::vector<Policy>& policies();

/// Time against bytes for every algorithm, for a picture of who wins where.
struct Race {
  struct Entry {
    std::string algorithm;
    std::vector<Seconds> times;  ///< for each of Race::bytes
    std::vector<int> segments;
  };
  Collective collective = Collective::allreduce;
  int ranks = 1;
  std::vector<std::uint64_t> bytes;
  std::vector<Entry> entries;
  std::vector<int> winners;  ///< index into entries for each of Race::bytes
  std::vector<LeftOut> left_out = {};
};

/// Sizes double from `least` to `most`.
Race race(const Situation& situation, std::uint64_t least, std::uint64_t most,
          const std::function<void(double)>& progress = {});

}  // namespace trireme
