// trireme simulate: what algorithms cost on a network.
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "trireme/choose.h"
#include "trireme/error.h"
#include "trireme/verify.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <memory>

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string name;
  std::string collective;
  SettingOptions setting;
  NetworkOptions network;
  bool json = false;
};

struct Line {
  std::string algorithm;
  int ranks;
  int servers;
  int segments;
  double rounds;
  Simulated cost;
};

Json to_json(const Line& line, const Options& options) {
  return {{"algorithm", line.algorithm},
          {"ranks", line.ranks},
          {"servers", line.servers},
          {"bytes", parse_bytes(options.network.bytes)},
          {"network", options.network.describe()},
          {"segments", line.segments},
          {"seconds", line.cost.time.count()},
          {"rounds", std::lround(line.rounds)},
          {"bytes_total", line.cost.bytes_total},
          {"bytes_per_rank", line.cost.bytes_per_rank},
          {"busiest_way_in", line.cost.busiest_way_in},
          {"steps", line.cost.steps}};
}

void print_header(const Options& options) {
  fmt::print("{}, {}\n", format_bytes(static_cast<double>(parse_bytes(options.network.bytes))),
             options.network.describe());
  fmt::print("{:33} {:>8} {:>12} {:>7} {:>14} {:>14} {:>14}\n", "algorithm", "segments", "time", "rounds",
             "sent by a rank", "busiest way in", "sent in all");
}

void print_line(const Line& line) {
  const auto size = [](std::uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  const std::string servers = line.servers > 0 ? fmt::format(" and {} more to serve", line.servers) : "";
  fmt::print("{:33} {:8} {:>12} {:7} {:>14} {:>14} {:>14}\n", line.algorithm + servers, line.segments,
             format_time(line.cost.time), line.rounds, size(line.cost.bytes_per_rank), size(line.cost.busiest_way_in),
             size(line.cost.bytes_total));
  std::fflush(stdout);  // The next may take a while.
}

Line simulate_file(const Options& options) {
  options.setting.check_meaning(nullptr);
  const Schedule schedule = parse_schedule(read_file(options.name), options.name);
  const Proof proof = verify(schedule);
  if (!proof.proven()) throw FailedProof(fmt::format("{} is wrong: {}", options.name, proof.finding->message));
  const auto network = make_network(options.network.read_topology(), schedule.ranks());
  const Simulated cost =
      simulate(schedule, *network,
               {.bytes = parse_bytes(options.network.bytes), .reduce_rate = parse_rate(options.network.reduce_rate)});
  return {schedule.algorithm, schedule.workers(), schedule.servers, 1, static_cast<double>(proof.rounds), cost};
}

Line simulate_row(const Algorithm& algorithm, const Options& options, const Situation& situation) {
  Candidate candidate{&algorithm, situation.setting, {}};
  check(algorithm, situation.setting);
  if (options.setting.given("--segments") || !algorithm.segmented) {
    Progress progress(full_name(algorithm));
    const auto network = make_network(*situation.topology, total_ranks(algorithm, situation.setting));
    candidate.setting = suited(algorithm, situation.setting, *network);
    candidate.cost =
        simulate(algorithm, candidate.setting, *network,
                 {.bytes = situation.bytes, .reduce_rate = situation.reduce_rate, .progress = progress.reporter()});
  } else {
    candidate = best_segments(algorithm, situation);
  }
  return {full_name(algorithm),
          situation.setting.ranks,
          algorithm.served ? situation.setting.servers : 0,
          algorithm.segmented ? candidate.setting.segments : 1,
          algorithm.rounds.value(candidate.setting),
          candidate.cost};
}

int simulate_one(const Options& options) {
  Line line;
  if (names_file(options.name)) {
    line = simulate_file(options);
  } else {
    const Algorithm& algorithm = find_row(options.name, options.collective);
    options.setting.check_meaning(&algorithm);
    const ReadSituation read(options.setting, options.network, algorithm.collective);
    line = simulate_row(algorithm, options, read.situation);
  }
  if (options.json) {
    print_json(to_json(line, options));
  } else {
    print_header(options);
    print_line(line);
  }
  return 0;
}

int simulate_all(const Options& options) {
  const Collective collective =
      options.collective.empty() ? Collective::allreduce : parse_collective(options.collective);
  const ReadSituation read(options.setting, options.network, collective);
  check(algorithms(collective).front(), read.situation.setting);
  Json all = Json::array();
  if (!options.json) print_header(options);
  for (const Algorithm& algorithm : algorithms(collective)) {
    Line line;
    try {
      check(algorithm, read.situation.setting);
      const std::uint64_t steps = estimated_steps(algorithm, read.situation.setting);
      if (steps > kQuickSteps) {
        throw UsageError(fmt::format("{} takes {} million steps; name it alone to simulate it all the same",
                                     full_name(algorithm), steps / 1'000'000));
      }
      line = simulate_row(algorithm, options, read.situation);
    } catch (const UsageError& error) {
      fmt::print(stderr, "left out: {}\n", error.what());
      continue;
    }
    if (options.json) all.push_back(to_json(line, options));
    if (!options.json) print_line(line);
  }
  if (options.json) print_json(all);
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("simulate", "Time algorithms on a model of a network");
  command->footer(
      "Without --segments each algorithm gets the count that is fastest for it.\n"
      "Example:\n"
      "  trireme simulate all --ranks 16 --bytes 16MiB --alpha 20us --bandwidth 10Gbit --reduce-rate 8GB");
  const auto options = std::make_shared<Options>();
  command->add_option("algorithm", options->name, "an algorithm, a program file, or all")->required();
  add_collective(*command, options->collective);
  options->setting.add(*command);
  options->network.add(*command);
  command->add_flag("--json", options->json, "as JSON: one object an algorithm");
  command->callback([&run, options] {
    run = [options] { return options->name == "all" ? simulate_all(*options) : simulate_one(*options); };
  });
}

}  // namespace trireme::cli
