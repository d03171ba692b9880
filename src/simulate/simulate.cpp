#include "trireme/simulate.h"

#include "simulate/engine.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

// About five minutes of work; one more rank count up, a direct algorithm would take all memory or all day.
constexpr std::uint64_t kMostSteps = 2'000'000'000;

// The furthest that run() can look ahead.
constexpr int kMostWindow = Engine<64>::kWindow;

void check_size(std::uint64_t steps) {
  if (steps > kMostSteps) {
    throw UsageError(fmt::format("about {} steps are beyond reason for a simulation: at most {}", steps, kMostSteps));
  }
}

// Runs with the given words of lookahead; if that is too short for the programs, with more.
template <int kWords, int... kMore>
Simulated run(const ProgramOf& program_of, int ranks, const Network& network, const SimulateOptions& options) {
  if constexpr (sizeof...(kMore) > 0) {
    if (options.window > Engine<kWords>::kWindow) return run<kMore...>(program_of, ranks, network, options);
  }
  if (options.deliveries != nullptr) options.deliveries->clear();
  const Program middle = program_of(ranks / 2);
  check_size(middle.steps.size() * static_cast<std::uint64_t>(ranks));
  Engine<kWords> engine(network, options, middle.blocks);
  engine.reserve(ranks);
  std::uint64_t steps = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const Program program = program_of(rank);
    check_size(steps += program.steps.size());
    engine.add_rank(program.steps);
  }
  switch (engine.run()) {
    case Outcome::ended: return engine.result();
    case Outcome::short_sighted:
      if constexpr (sizeof...(kMore) > 0) return run<kMore...>(program_of, ranks, network, options);
      throw UsageError(fmt::format("rank {} would have to look more than {} steps ahead, beyond what is simulated",
                                   engine.first_unfinished(), Engine<kWords>::kWindow));
    case Outcome::stuck: break;
  }
  throw UsageError(fmt::format("the simulation is stuck: rank {} waits for ever; 'trireme verify' says why",
                               engine.first_unfinished()));
}

// How many parts the communicator would cut every block into.
int segments_of(const ProgramOf& program_of, int ranks, const SimulateOptions& options) {
  if (options.segment_bytes == 0) return 1;
  int most_blocks = 1;
  int blocks = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    const Program program = program_of(rank);
    blocks = program.blocks;
    for (const Step& step : program.steps) most_blocks = std::max(most_blocks, step.run.count);
  }
  const auto parts = static_cast<std::uint64_t>(blocks);
  const std::uint64_t message = (options.bytes + parts - 1) / parts * static_cast<std::uint64_t>(most_blocks);
  return static_cast<int>(std::max<std::uint64_t>(1, (message + options.segment_bytes - 1) / options.segment_bytes));
}

// The program on each segment by itself. Which blocks a segment has does not matter for the time.
Program cut(const Program& program, int segments) {
  Program result{.blocks = program.blocks * segments};
  result.steps.reserve(program.steps.size() * static_cast<std::size_t>(segments));
  for (const Step& step : program.steps) {
    for (int segment = 0; segment < segments; ++segment) {
      result.steps.push_back({step.action, step.peer, Run(segment * program.blocks + step.run.first, step.run.count)});
    }
  }
  return result;
}

// A barrier's messages have no content.
SimulateOptions with_bytes_of(Collective collective, SimulateOptions options) {
  if (collective == Collective::barrier) options.bytes = 0;
  return options;
}

}  // namespace

Ticks to_ticks(Seconds time) {
  constexpr double kMostTicks = 1e18;
  return Ticks(std::llround(std::min(time.count() * 1e12, kMostTicks)));
}

Simulated simulate(const ProgramOf& program_of, int ranks, const Network& network, const SimulateOptions& options) {
  if (network.ranks() < ranks) {
    throw UsageError(fmt::format("the network has {} ranks, and the programs need {}", network.ranks(), ranks));
  }
  const int segments = segments_of(program_of, ranks, options);
  if (segments == 1) return run<1, 2, 4, 16, 64>(program_of, ranks, network, options);
  SimulateOptions wider = options;
  wider.window = std::min(options.window * segments, kMostWindow);
  return run<1, 2, 4, 16, 64>([&](int rank) { return cut(program_of(rank), segments); }, ranks, network, wider);
}

Simulated simulate(const Schedule& schedule, const Network& network, const SimulateOptions& options) {
  return simulate([&](int rank) { return schedule.programs[rank]; }, schedule.ranks(), network,
                  with_bytes_of(schedule.collective, options));
}

Simulated simulate(const Algorithm& algorithm, const Setting& setting, const Network& network,
                   const SimulateOptions& options) {
  check(algorithm, setting);
  return simulate([&](int rank) { return algorithm.program(rank, setting); }, total_ranks(algorithm, setting), network,
                  with_bytes_of(algorithm.collective, options));
}

std::uint64_t estimated_steps(const Algorithm& algorithm, const Setting& setting) {
  const int ranks = total_ranks(algorithm, setting);
  return static_cast<std::uint64_t>(algorithm.program(ranks / 2, setting).steps.size()) * ranks;
}

Setting suited(const Algorithm& algorithm, Setting setting, const Network& network) {
  if (setting.ranks_per_host == 0) setting.ranks_per_host = network.ranks_per_host();
  // A torus of ranks lies on a torus of links row by row; on hosts, a row is a host.
  const int each = network.ranks_per_host();
  const int rows = each > 0 && setting.ranks % each == 0 ? setting.ranks / each : network.rows();
  if (setting.rows == 0 && rows > 0 && setting.ranks % rows == 0) setting.rows = rows;
  if (algorithm.name == "blink" && !setting.trees) {
    const std::optional<LinkGraph> links = network.links(setting.ranks);
    if (links) setting.trees = std::make_shared<TreePacking>(pack_trees(*links));
  }
  return setting;
}

}  // namespace trireme
