// trireme verify: proofs, for algorithms over a range of ranks or for a program file.
#include "trireme/verify.h"

#include "cli/commands.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "trireme/algorithms.h"
#include "trireme/error.h"
#include "trireme/network.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  CLI::App* command = nullptr;
  std::string name = "all";
  std::string ranks = "1..16";
  std::string collective;
  bool json = false;
};

struct Tally {
  int proven = 0;
  int failed = 0;
  bool same_bits = true;
  Json failures = Json::array();

  void count(const std::string& what, const Proof& proof, const std::string& broken_claim) {
    same_bits = same_bits && (!proof.proven() || proof.same_bits);
    if (proof.proven() && broken_claim.empty()) {
      ++proven;
      return;
    }
    ++failed;
    const Finding finding = proof.finding.value_or(Finding{.message = broken_claim});
    fmt::print(stderr, "{}: {}\n", what, finding.message);
    failures.push_back({{"what", what},
                        {"rank", finding.rank},
                        {"step", finding.step},
                        {"block", finding.block},
                        {"message", finding.message}});
  }
};

// The settings worth a proof of their own for so many ranks: those that an algorithm does not read make no difference.
std::vector<Setting> settings_for(const Algorithm& algorithm, int ranks) {
  std::vector<Setting> settings{{.ranks = ranks}};
  const auto vary = [&](int Setting::*field, const std::set<int>& values) {
    std::vector<Setting> varied;
    for (const Setting& setting : settings) {
      for (const int value : values) {
        varied.push_back(setting);
        varied.back().*field = value;
      }
    }
    settings = std::move(varied);
  };
  if (algorithm.segmented) vary(&Setting::segments, {1, 3});
  if (algorithm.name == "torus") {
    std::set<int> divisors;
    for (int rows = 1; rows <= ranks; ++rows) {
      if (ranks % rows == 0) divisors.insert(rows);
    }
    vary(&Setting::rows, divisors);
  }
  if (algorithm.name == "hierarchical_ring") vary(&Setting::ranks_per_host, {0, 1, 3, ranks});
  if (algorithm.name == "blink" && ranks > 1) {
    // Once without links, and once packed into a torus of them.
    const int rows = static_cast<int>(std::sqrt(ranks));
    const auto links = make_torus(rows, (ranks + rows - 1) / rows, {})->links(ranks);
    const auto trees = std::make_shared<TreePacking>(pack_trees(*links));
    for (std::size_t i = 0, count = settings.size(); i < count; ++i) {
      settings.push_back(settings[i]);
      settings.back().trees = trees;
    }
  }
  if (algorithm.served) vary(&Setting::servers, {0, 1, (ranks + 1) / 2, ranks});
  const Collective collective = algorithm.collective;
  const bool rooted = collective == Collective::broadcast || collective == Collective::reduce ||
                      collective == Collective::gather || collective == Collective::scatter;
  if (rooted) vary(&Setting::root, {0, ranks / 2, ranks - 1});
  return settings;
}

std::string describe(const Algorithm& algorithm, const Setting& setting) {
  std::string text = fmt::format("{} on {} ranks", full_name(algorithm), setting.ranks);
  if (setting.segments != 1) text += fmt::format(", {} segments", setting.segments);
  if (setting.root != 0) text += fmt::format(", root {}", setting.root);
  if (setting.rows != 0) text += fmt::format(", {} rows", setting.rows);
  if (setting.ranks_per_host != 0) text += fmt::format(", {} ranks a host", setting.ranks_per_host);
  if (setting.trees) text += fmt::format(", {} packed trees", setting.trees->trees.size());
  if (algorithm.served) text += fmt::format(", {} servers", setting.servers);
  return text;
}

void prove(const Algorithm& algorithm, int ranks, Tally& tally) {
  for (const Setting& setting : settings_for(algorithm, ranks)) {
    const Proof proof = verify(make_schedule(algorithm, setting));
    tally.count(describe(algorithm, setting), proof,
                proof.proven() ? broken_claim(algorithm, setting, proof) : std::string());
  }
}

// Refuses what would take all memory or find nothing to prove, before anything is printed.
void check_range(const Algorithm& algorithm, const RankRange& range, bool alone) {
  int largest = range.last;
  while (largest >= range.first && !algorithm.accepts(largest)) --largest;
  if (largest < range.first) {
    if (!alone) return;
    throw UsageError(fmt::format("{} takes {} only, and there are none in {}..{}", full_name(algorithm),
                                 algorithm.takes, range.first, range.last));
  }
  for (const Setting& setting : settings_for(algorithm, largest)) {
    const int total = total_ranks(algorithm, setting);
    std::int64_t values = total;
    for (const Step& step : algorithm.program(total / 2, setting).steps) values += step.run.count;
    if (values * total > kMostProofValues) {
      throw UsageError(fmt::format("{}: beyond reason for a proof; give fewer ranks", describe(algorithm, setting)));
    }
  }
}

std::vector<const Algorithm*> chosen_rows(const Options& options) {
  std::vector<const Algorithm*> rows;
  if (options.name != "all") return {&find_row(options.name, options.collective)};
  for (const Algorithm& row : algorithms()) {
    if (options.collective.empty() || row.collective == parse_collective(options.collective)) rows.push_back(&row);
  }
  return rows;
}

int conclude(int proven, int failed, const Options& options, Json report) {
  if (options.json) {
    report["proven"] = proven;
    report["failed"] = failed;
    print_json(report);
  } else {
    fmt::print("{} proven, {} failed\n", proven, failed);
  }
  return failed > 0 ? 1 : 0;
}

int verify_file(const Options& options) {
  if (options.command->count("--ranks") + options.command->count("--collective") > 0) {
    throw UsageError(fmt::format("{} is a program file: it says its ranks and collective itself", options.name));
  }
  const Schedule schedule = parse_schedule(read_file(options.name), options.name);
  const Proof proof = verify(schedule);
  Tally tally;
  tally.count(options.name, proof, {});
  Json report{{"algorithm", schedule.algorithm},
              {"collective", to_string(schedule.collective)},
              {"ranks", schedule.ranks()},
              {"failures", tally.failures}};
  if (proof.proven()) {
    report["rounds"] = proof.rounds;
    report["sent"] = proof.sent;
    report["same_bits"] = proof.same_bits;
    if (!options.json) {
      fmt::print("{}: {} on {} ranks, {} rounds, at most {:.4g} buffers sent by a rank, same bits on every rank: {}\n",
                 options.name, to_string(schedule.collective), schedule.ranks(), proof.rounds, proof.sent,
                 proof.same_bits ? "yes" : "no");
    }
  }
  return conclude(tally.proven, tally.failed, options, std::move(report));
}

int verify_rows(const Options& options) {
  const RankRange range = parse_rank_range(options.ranks);
  const std::vector<const Algorithm*> rows = chosen_rows(options);
  for (const Algorithm* row : rows) check_range(*row, range, rows.size() == 1);
  Progress progress("proving");
  Json report{{"ranks", options.ranks}, {"algorithms", Json::array()}};
  int proven = 0;
  int failed = 0;
  if (!options.json) fmt::print("{:33} {:>7} {:>7}  {}\n", "algorithm", "proven", "failed", "same bits on every rank");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Algorithm& row = *rows[i];
    Tally tally;
    for (int ranks = range.first; ranks <= range.last; ++ranks) {
      const double part = static_cast<double>(ranks - range.first) / (range.last - range.first + 1);
      progress.show((static_cast<double>(i) + part) / static_cast<double>(rows.size()));
      if (row.accepts(ranks)) prove(row, ranks, tally);
    }
    proven += tally.proven;
    failed += tally.failed;
    progress.clear();
    const char* const same_bits = tally.same_bits ? "yes" : "no";
    if (!options.json) fmt::print("{:33} {:7} {:7}  {}\n", full_name(row), tally.proven, tally.failed, same_bits);
    report["algorithms"].push_back({{"algorithm", full_name(row)},
                                    {"proven", tally.proven},
                                    {"failed", tally.failed},
                                    {"same_bits", tally.same_bits},
                                    {"failures", tally.failures}});
  }
  return conclude(proven, failed, options, std::move(report));
}

}  // namespace

void add_verify(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("verify", "Prove that programs compute what they promise, without deadlock");
  command->footer(
      "Each algorithm is proven for several segment counts, roots, rows, hosts and servers, as far as it has them.\n"
      "Exit status 1 if a proof fails, 2 for wrong use.\n"
      "Examples:\n"
      "  trireme verify all --ranks 1..64\n"
      "  trireme verify my_algorithm.txt");
  const auto options = std::make_shared<Options>();
  options->command = command;
  command->add_option("algorithm", options->name, "an algorithm, a program file, or all")->capture_default_str();
  command->add_option("--ranks", options->ranks, "a number or a range of ranks; a file says its own")
      ->type_name("P|FIRST..LAST")
      ->capture_default_str();
  add_collective(*command, options->collective);
  command->add_flag("--json", options->json, "as JSON");
  command->callback([&run, options] {
    run = [options] {
      return options->name != "all" && names_file(options->name) ? verify_file(*options) : verify_rows(*options);
    };
  });
}

}  // namespace trireme::cli
