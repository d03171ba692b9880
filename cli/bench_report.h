// What `trireme bench` has measured, as a table, as JSON and as a race to be drawn.
#pragma once

#include "cli/bench_contest.h"
#include "trireme/choose.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::cli {

/// Where it was measured.
struct Machine {
  int cores = 0;
  std::string model{};

  static Machine here();
};

/// Bytes a second; 0 of a barrier.
double algorithm_bandwidth(const Result& result);

/// The same, times what the busiest link has to carry for each byte of the buffer, as nccl-tests count it: comparable
/// between collectives and numbers of ranks.
double bus_bandwidth(const Result& result, Collective collective, int ranks);

/// Above 1: Trireme is faster.
double ratio(const Result& trireme, const Result& peer);

/// Prints the table size by size, as results come.
class BenchTable {
 public:
  /// `first`: the first size's results, which tell the peers that take part.
  BenchTable(const Contest& contest, const Machine& machine, const std::vector<Result>& first);

  void print(const std::vector<Result>& results) const;

  /// The fastest of several algorithms at each size, beside what selection takes, and what the signs mean.
  void finish(const std::vector<Result>& results) const;

 private:
  void print_ratios(const Result& result, const std::vector<Result>& results) const;
  static void print_fastest(const std::vector<Result>& results, std::uint64_t bytes, const std::string& buffers);

  const Contest& contest_;
  std::vector<std::string> peers_;
};

nlohmann::ordered_json bench_json(const Contest& contest, const Machine& machine, const std::vector<Result>& results,
                                  const std::vector<LeftOut>& left_out);

/// All ways that were timed at every size.
Race bench_race(const Contest& contest, const std::vector<Result>& results);

/// "measured by 'trireme bench' ..., 2 cores of ...", for below a picture.
std::string bench_caption(const Contest& contest, const Machine& machine);

}  // namespace trireme::cli
