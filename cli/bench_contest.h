// Times a collective by Trireme, in one or many ways, and by other libraries, all in one run.
//
// All that takes part stays alive and idle. For each size there are rounds; in a round each way is timed once, in turn,
// so that what else the machine does meets all of them alike. A figure is the median over rounds of a round's median.
#pragma once

#include "cli/interrupts.h"
#include "trireme/program.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trireme::cli {

struct Contest {
  Collective collective = Collective::allreduce;
  int ranks = 0;
  std::string transport = "auto";         ///< shm, tcp or auto
  std::vector<std::uint64_t> bytes{};     ///< of the whole buffer
  std::vector<std::string> algorithms{};  ///< names of the collective's rows; empty: what selection takes
  std::vector<std::string> buffers{};     ///< window, ordinary; of a barrier: none
  std::vector<std::string> against{};     ///< peers
  int rounds = 5;
  int repeats = 0;  ///< in all rounds together; 0: as many as fit into a fraction of a second a round
};

/// How one way did at one size.
struct Result {
  std::uint64_t bytes = 0;
  std::string peer{};       ///< empty: Trireme
  std::string algorithm{};  ///< of Trireme
  std::string buffers{};    ///< of Trireme
  bool chosen = false;      ///< selection takes this algorithm
  double median_us = 0;
  double min_us = 0;
};

/// What turned out not to run here, and why.
struct LeftOut {
  std::string peer{};  ///< empty: an algorithm, which `why` names
  std::string why{};
};

/// Called with each size's results, Trireme's first, as soon as they are there.
using OnSize = std::function<void(const std::vector<Result>&)>;
using OnLeftOut = std::function<void(const LeftOut&)>;

/// Throws Error with what went wrong if a rank dies or has a wrong result, UsageError for an only peer or algorithm
/// that is not there or can't do it, and Interrupted; nothing that was started is left then. `progress` is told the
/// part that is done; `left_out` of each of several peers or algorithms that can't do it: the others go on without.
void hold(const Contest& contest, const Interrupts& interrupts, const OnSize& on_size,
          const std::function<void(double)>& progress, const OnLeftOut& left_out);

}  // namespace trireme::cli
