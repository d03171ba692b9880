// trireme race: time against bytes for all algorithms, and who wins where.
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "trireme/choose.h"
#include "trireme/draw.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string collective;
  std::string from = "1KiB";
  std::string to = "1GiB";
  SettingOptions setting;
  NetworkOptions network;
  std::string svg;
  bool json = false;
};

void print_race_json(const Race& race, const std::string& network) {
  Json report{
      {"collective", to_string(race.collective)}, {"ranks", race.ranks}, {"network", network}, {"bytes", race.bytes}};
  report["algorithms"] = Json::array();
  for (const Race::Entry& entry : race.entries) {
    Json seconds = Json::array();
    for (const Seconds time : entry.times) seconds.push_back(time.count());
    report["algorithms"].push_back(
        {{"algorithm", entry.algorithm}, {"seconds", seconds}, {"segments", entry.segments}});
  }
  report["left_out"] = Json::array();
  for (const LeftOut& left_out : race.left_out) {
    report["left_out"].push_back({{"algorithm", full_name(*left_out.algorithm)}, {"why", left_out.why}});
  }
  report["winners"] = Json::array();
  for (const int winner : race.winners) report["winners"].push_back(race.entries[winner].algorithm);
  print_json(report);
}

void print_winners(const Race& race, const std::string& network) {
  fmt::print("{}\n", network);
  const auto size = [&](std::size_t i) { return format_bytes(static_cast<double>(race.bytes[i])); };
  for (std::size_t first = 0, i = 0; i < race.bytes.size(); ++i) {
    const bool last_of_winner = i + 1 == race.bytes.size() || race.winners[i + 1] != race.winners[i];
    if (!last_of_winner) continue;
    fmt::print("{:>10} to {:>10}  {}\n", size(first), size(i), race.entries[race.winners[i]].algorithm);
    first = i + 1;
  }
  for (const LeftOut& left_out : race.left_out) {
    fmt::print("{} left out: {}\n", full_name(*left_out.algorithm), left_out.why);
  }
}

int run_race(const Options& options) {
  const Collective collective =
      options.collective.empty() ? Collective::allreduce : parse_collective(options.collective);
  if (collective == Collective::barrier) throw UsageError("a barrier has no bytes to race over");
  if (options.setting.given("--segments")) throw UsageError("race finds the number of segments itself");
  const ReadSituation read(options.setting, options.network, collective);
  check(algorithms(collective).front(), read.situation.setting);
  const std::uint64_t from = parse_bytes(options.from);
  const std::uint64_t to = parse_bytes(options.to);
  std::optional<OutputFile> file;
  if (!options.svg.empty()) file.emplace(options.svg);
  std::optional<Progress> progress("racing");
  const Race result = race(read.situation, from, to, progress->reporter());
  progress.reset();
  if (file) file->save(draw_race(result, options.network.describe()));
  (options.json ? print_race_json : print_winners)(result, options.network.describe());
  return 0;
}

}  // namespace

void add_race(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("race", "Time all algorithms over a range of sizes: who wins where");
  command->footer("Example:\n  trireme race --ranks 16 --svg race.svg");
  const auto options = std::make_shared<Options>();
  add_collective(*command, options->collective);
  options->setting.add(*command);
  command->add_option("--from", options->from, "the smallest size")->type_name("SIZE")->capture_default_str();
  command->add_option("--to", options->to, "the largest size")->type_name("SIZE")->capture_default_str();
  command->add_option("--svg", options->svg, "draw it to this file")->type_name("FILE");
  options->network.add(*command, false);
  command->add_flag("--json", options->json, "as JSON");
  command->callback([&run, options] { run = [options] { return run_race(*options); }; });
}

}  // namespace trireme::cli
