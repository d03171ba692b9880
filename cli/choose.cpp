// trireme choose: the fastest algorithm, why, and what other libraries would have taken.
#include "trireme/choose.h"

#include "cli/commands.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "trireme/error.h"
#include "trireme/names.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string policy = "trireme";
  std::string collective;
  SettingOptions setting;
  NetworkOptions network;
  bool json = false;
};

// What a policy takes, and what that costs here.
struct Verdict {
  std::string policy;
  Candidate candidate;
  std::string reason;
};

std::vector<Verdict> judge(const Situation& situation, const Choice& choice) {
  std::vector<Verdict> verdicts{{"trireme", choice.best(), choice.reason}};
  if (situation.collective != Collective::allreduce) return verdicts;
  for (const Policy& policy : policies()) {
    const Algorithm& taken = find_algorithm(policy.rule(situation.setting.ranks, situation.bytes));
    verdicts.push_back(
        {std::string(policy.name), best_segments(taken, situation),
         fmt::format("The fixed rules of {} take it for {} ranks and {} of float32; timed as Trireme's version of it.",
                     policy.source, situation.setting.ranks, format_bytes(static_cast<double>(situation.bytes)))});
  }
  return verdicts;
}

std::string name_with_segments(const Candidate& candidate) {
  std::string name = full_name(*candidate.algorithm);
  if (!candidate.algorithm->segmented) return name;
  return fmt::format("{}, {} segment{}", name, candidate.setting.segments, candidate.setting.segments == 1 ? "" : "s");
}

Json to_json(const Candidate& candidate) {
  return {{"algorithm", full_name(*candidate.algorithm)},
          {"segments", candidate.algorithm->segmented ? candidate.setting.segments : 1},
          {"seconds", candidate.cost.time.count()},
          {"rounds", std::lround(candidate.algorithm->rounds.value(candidate.setting))},
          {"bytes_per_rank", candidate.cost.bytes_per_rank}};
}

void print_choice_json(const Verdict& chosen, const std::vector<Verdict>& verdicts, const Choice& choice,
                       const std::string& network) {
  Json report = to_json(chosen.candidate);
  report["policy"] = chosen.policy;
  report["reason"] = chosen.reason;
  report["network"] = network;
  report["policies"] = Json::array();
  for (const Verdict& verdict : verdicts) {
    Json entry = to_json(verdict.candidate);
    entry["policy"] = verdict.policy;
    report["policies"].push_back(std::move(entry));
  }
  report["candidates"] = Json::array();
  for (const Candidate& candidate : choice.candidates) report["candidates"].push_back(to_json(candidate));
  report["left_out"] = Json::array();
  for (const LeftOut& left_out : choice.left_out) {
    report["left_out"].push_back({{"algorithm", full_name(*left_out.algorithm)}, {"why", left_out.why}});
  }
  print_json(report);
}

void print_text(const Verdict& chosen, const std::vector<Verdict>& verdicts, const Choice& choice,
                const std::string& network) {
  fmt::print("{}: {}\n{}\n({})\n\n", name_with_segments(chosen.candidate), format_time(chosen.candidate.cost.time),
             chosen.reason, network);
  const Seconds best = choice.best().cost.time;
  const auto ratio = [&](const Candidate& candidate) {
    return best.count() > 0 ? fmt::format("{:.2f}x", candidate.cost.time / best) : std::string("1.00x");
  };
  fmt::print("{:10} {:36} {:>12}\n", "policy", "takes", "time");
  for (const Verdict& verdict : verdicts) {
    fmt::print("{:10} {:36} {:>12} {:>7}\n", verdict.policy, name_with_segments(verdict.candidate),
               format_time(verdict.candidate.cost.time), ratio(verdict.candidate));
  }
  fmt::print("\n{:47} {:>12}\n", "candidate", "time");
  for (const Candidate& candidate : choice.candidates) {
    fmt::print("{:47} {:>12} {:>7}\n", name_with_segments(candidate), format_time(candidate.cost.time),
               ratio(candidate));
  }
  for (const LeftOut& left_out : choice.left_out) {
    fmt::print("{:33} left out: {}\n", full_name(*left_out.algorithm), left_out.why);
  }
}

void check_policy(const std::string& name, Collective collective) {
  std::vector<std::string> names{"trireme"};
  for (const Policy& policy : policies()) names.emplace_back(policy.name);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string guess = nearest(name, names);
    throw UsageError(fmt::format("no policy is called '{}'; {}", name,
                                 guess.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                                               : fmt::format("did you mean '{}'?", guess)));
  }
  if (name != "trireme" && collective != Collective::allreduce) {
    throw UsageError(fmt::format("the rules of {} are for allreduce, not {}", name, to_string(collective)));
  }
}

int choose_one(const Options& options) {
  const Collective collective =
      options.collective.empty() ? Collective::allreduce : parse_collective(options.collective);
  check_policy(options.policy, collective);
  if (options.setting.given("--segments")) throw UsageError("choose finds the number of segments itself");
  const ReadSituation read(options.setting, options.network, collective);
  std::optional<Progress> progress("simulating");
  const Choice choice = choose(read.situation, progress->reporter());
  const std::vector<Verdict> verdicts = judge(read.situation, choice);
  progress.reset();
  const auto chosen = std::find_if(verdicts.begin(), verdicts.end(),
                                   [&](const Verdict& verdict) { return verdict.policy == options.policy; });
  (options.json ? print_choice_json : print_text)(*chosen, verdicts, choice, options.network.describe());
  return 0;
}

}  // namespace

void add_choose(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("choose", "Choose the fastest algorithm, and say why");
  command->footer("Example:\n  trireme choose --ranks 16 --bytes 1MiB --policy openmpi");
  const auto options = std::make_shared<Options>();
  add_collective(*command, options->collective);
  options->setting.add(*command);
  options->network.add(*command);
  command->get_option("--bytes")->required()->default_str("");
  command->add_option("--policy", options->policy, "who chooses: trireme, openmpi or mpich")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--json", options->json, "as JSON");
  command->callback([&run, options] { run = [options] { return choose_one(*options); }; });
}

}  // namespace trireme::cli
