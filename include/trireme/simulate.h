// The simulator: how long a program takes on a model of a network.
//
// A rank takes every step as soon as the program allows: steps on different blocks overlap. A send copies its blocks
// out when it begins; a message waits at its receiver until the step that takes it. A rank adds one message at a time.
#pragma once

#include "trireme/algorithms.h"
#include "trireme/network.h"
#include "trireme/program.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace trireme {

/// One message as it went.
struct Delivery {
  int from, to;
  Run sent;      ///< the sender's blocks
  Run taken;     ///< the receiver's blocks
  bool adds;     ///< it was added, not received
  Ticks begins;  ///< the first byte leaves
  Ticks arrives;
  Ticks ends;  ///< it has been added, or put into place
};

struct Simulated {
  Seconds time{0};
  std::uint64_t bytes_total = 0;     ///< sent by all ranks together
  std::uint64_t bytes_per_rank = 0;  ///< the most that one rank sends
  std::uint64_t busiest_way_in = 0;  ///< the most that one rank takes in
  std::uint64_t steps = 0;
};

struct SimulateOptions {
  std::uint64_t bytes = 0;   ///< of the buffer
  double reduce_rate = 8e9;  ///< bytes that a rank adds in a second
  std::uint64_t segment_bytes =
      0;            ///< messages are cut into parts of at most this, each of which goes on by itself, as
                    ///< the communicator does; 0: they stay whole
  int window = 32;  ///< how far a rank looks past its oldest unfinished step
  std::vector<Delivery>* deliveries = nullptr;  ///< if given, filled with every message
  std::function<void(double)> progress = {};    ///< called now and then with the part that is done
};

/// The programs of all ranks, one at a time, so that they need not be in memory together.
using ProgramOf = std::function<Program(int rank)>;

/// Throws UsageError if the network has too few ranks, or the programs can't come to an end.
Simulated simulate(const ProgramOf& program_of, int ranks, const Network& network, const SimulateOptions& options);
Simulated simulate(const Schedule& schedule, const Network& network, const SimulateOptions& options);
Simulated simulate(const Algorithm& algorithm, const Setting& setting, const Network& network,
                   const SimulateOptions& options);

/// About how many steps all ranks take together: those of a middling rank, times the ranks.
std::uint64_t estimated_steps(const Algorithm& algorithm, const Setting& setting);

/// What is simulated without asking when many algorithms are; more takes more than a few seconds.
inline constexpr std::uint64_t kQuickSteps = 50'000'000;

/// The setting as the network suggests it: ranks per host, rows, packed trees.
Setting suited(const Algorithm& algorithm, Setting setting, const Network& network);

}  // namespace trireme
