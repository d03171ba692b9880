// trireme plan: the programs of an algorithm, as text, JSON or a drawing.
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/options.h"
#include "trireme/draw.h"
#include "trireme/error.h"
#include "trireme/simulate.h"
#include "trireme/verify.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

// Text is for reading; no one reads more.
constexpr std::uint64_t kMostSteps = 20'000'000;
constexpr std::size_t kMostArrows = 20'000;

struct Options {
  std::string name;
  std::string collective;
  SettingOptions setting;
  NetworkOptions network;
  std::optional<int> rank;
  std::string svg;
  bool json = false;
};

Schedule read_schedule(const Options& options) {
  if (names_file(options.name)) {
    options.setting.check_meaning(nullptr);
    return parse_schedule(read_file(options.name), options.name);
  }
  const Algorithm& algorithm = find_row(options.name, options.collective);
  options.setting.check_meaning(&algorithm);
  Setting setting = options.setting.resolve();
  check(algorithm, setting);
  const int ranks = total_ranks(algorithm, setting);
  const std::uint64_t steps = estimated_steps(algorithm, setting);
  if (steps > kMostSteps) {
    throw UsageError(fmt::format("a plan of about {} steps is beyond reason: give fewer ranks or segments", steps));
  }
  const auto network = make_network(options.network.read_topology(), ranks);
  return make_schedule(algorithm, suited(algorithm, setting, *network));
}

Json to_json(const Program& program, int rank) {
  Json steps = Json::array();
  for (const Step& step : program.steps) {
    steps.push_back({{"action", to_string(step.action)},
                     {"block", step.run.first},
                     {"blocks", step.run.count},
                     {"peer", step.peer}});
  }
  return {{"rank", rank}, {"steps", std::move(steps)}};
}

Json to_json(const Schedule& schedule, std::optional<int> only) {
  Json programs = Json::array();
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (!only || *only == rank) programs.push_back(to_json(schedule.programs[rank], rank));
  }
  return {{"algorithm", schedule.algorithm}, {"collective", to_string(schedule.collective)},
          {"ranks", schedule.ranks()},       {"blocks", schedule.blocks()},
          {"root", schedule.root},           {"servers", schedule.servers},
          {"programs", std::move(programs)}};
}

std::string draw(const Schedule& schedule, const Options& options) {
  const auto network = make_network(options.network.read_topology(), schedule.ranks());
  std::vector<Delivery> deliveries;
  const std::uint64_t bytes = parse_bytes(options.network.bytes);
  simulate(schedule, *network,
           {.bytes = bytes, .reduce_rate = parse_rate(options.network.reduce_rate), .deliveries = &deliveries});
  if (deliveries.size() > kMostArrows) {
    throw UsageError(fmt::format("a drawing of {} messages can't be read: at most {}", deliveries.size(), kMostArrows));
  }
  return draw_schedule(schedule, deliveries,
                       fmt::format("{}, {}", format_bytes(static_cast<double>(bytes)), options.network.describe()));
}

int plan(const Options& options) {
  if (options.rank && !options.svg.empty() && !options.json) {
    throw UsageError("--rank does not go with --svg: a drawing has all ranks");
  }
  std::optional<OutputFile> file;
  if (!options.svg.empty()) file.emplace(options.svg);
  const Schedule schedule = read_schedule(options);
  if (options.rank && (*options.rank < 0 || *options.rank >= schedule.ranks())) {
    throw UsageError(fmt::format("there is no rank {} among {}", *options.rank, schedule.ranks()));
  }
  if (file && names_file(options.name)) {
    const Proof proof = verify(schedule);
    if (!proof.proven()) throw FailedProof(fmt::format("{} is wrong: {}", options.name, proof.finding->message));
  }
  if (file) {
    file->save(draw(schedule, options));
    if (!options.json) fmt::print("drawn to {}\n", options.svg);
  }
  if (options.json) {
    print_json(to_json(schedule, options.rank));
  } else if (!file) {
    fmt::print("{}", options.rank ? to_text(schedule.programs[*options.rank], *options.rank) : to_text(schedule));
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("plan", "Show the programs of an algorithm, as text, JSON or a drawing");
  command->footer(
      "Examples:\n"
      "  trireme plan ring --ranks 5 > ring.txt\n"
      "  trireme plan double_binary_tree --ranks 8 --segments 2 --svg tree.svg");
  const auto options = std::make_shared<Options>();
  command->add_option("algorithm", options->name, "its name, or a program file")->required();
  add_collective(*command, options->collective);
  options->setting.add(*command);
  command->add_option("--rank", options->rank, "only this rank's program");
  command->add_option("--svg", options->svg, "draw it, as it would go on the network, to this file")->type_name("FILE");
  options->network.add(*command);
  command->add_flag("--json", options->json, "as JSON");
  command->callback([&run, options] { run = [options] { return plan(*options); }; });
}

}  // namespace trireme::cli
