// trireme bench: how long collectives of real ranks take on this machine, beside other libraries.
#include "cli/bench_contest.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/peers.h"
#include "cli/progress.h"
#include "trireme/draw.h"
#include "trireme/error.h"
#include "trireme/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace trireme::cli {
namespace {

constexpr int kMostRanks = 1024;
constexpr int kMostCount = 1'000'000;

struct Options {
  const CLI::App* command = nullptr;
  std::string collective;
  int ranks = 0;
  std::string transport = "auto";
  std::string bytes = "1KiB..64MiB";
  std::string algorithm;
  std::string buffers;
  std::string against;
  int repeats = 0;
  int rounds = 5;
  bool json = false;
  std::string svg;

  bool given(const std::string& option) const { return command->get_option(option)->count() > 0; }
};

void check_words(const std::vector<std::string>& words, const std::vector<std::string>& known,
                 const std::string& what) {
  for (const std::string& word : words) {
    if (std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string guess = nearest(word, known);
    throw UsageError(fmt::format("no {} is called '{}'; {}", what, word,
                                 guess.empty() ? fmt::format("there are {}", fmt::join(known, ", "))
                                               : fmt::format("did you mean '{}'?", guess)));
  }
}

// Names of rows that a communicator can run; `all` leaves out those that it can't.
std::vector<std::string> parse_algorithms(const std::string& text, Collective collective, int ranks) {
  std::vector<std::string> names;
  if (text == "all") {
    for (const Algorithm& algorithm : algorithms(collective)) {
      if (algorithm.served || !algorithm.accepts(ranks)) {
        fmt::print(stderr, "left out: {} {}\n", full_name(algorithm),
                   algorithm.served ? "needs extra ranks that only serve" : fmt::format("takes {}", algorithm.takes));
      } else {
        names.emplace_back(algorithm.name);
      }
    }
    return names;
  }
  std::vector<std::string> known;
  for (const Algorithm& algorithm : algorithms(collective)) known.emplace_back(algorithm.name);
  for (const std::string& word : split_list(text, "--algorithm")) {
    // Also as 'trireme algorithms' writes it: broadcast/tree.
    const std::string prefix = fmt::format("{}/", to_string(collective));
    const std::string name = word.starts_with(prefix) ? word.substr(prefix.size()) : word;
    check_words({name}, known, fmt::format("algorithm for {}", to_string(collective)));
    const Algorithm& algorithm = find_row(name, std::string(to_string(collective)));
    if (algorithm.served) throw UsageError(fmt::format("{} needs extra ranks that only serve", name));
    check(algorithm, {.ranks = ranks});
    names.push_back(name);
  }
  return names;
}

std::vector<std::string> parse_buffers(const Options& options, Collective collective) {
  if (collective == Collective::barrier) return {"none"};
  // Between hosts nothing reads a window in place.
  if (options.buffers.empty() && options.transport == "tcp") return {"ordinary"};
  if (options.buffers.empty()) return {"window", "ordinary"};
  std::vector<std::string> buffers = split_list(options.buffers, "--buffers");
  check_words(buffers, {"window", "ordinary"}, "kind of buffers");
  return buffers;
}

Contest parse(const Options& options) {
  Contest contest{.collective = parse_collective(options.collective), .ranks = options.ranks};
  const bool barrier = contest.collective == Collective::barrier;
  const auto check_count = [](int count, int most, const std::string& option) {
    if (count < 1 || count > most) throw UsageError(fmt::format("{} {} is not 1 to {}", option, count, most));
  };
  check_count(options.ranks, kMostRanks, "-n");
  check_count(options.rounds, kMostCount, "--rounds");
  if (options.given("--repeats")) check_count(options.repeats, kMostCount, "--repeats");
  for (const char* option : {"--bytes", "--buffers", "--svg"}) {
    if (barrier && options.given(option)) throw UsageError(fmt::format("a barrier has no bytes: leave out {}", option));
  }
  check_words({options.transport}, {"shm", "tcp", "auto"}, "transport");
  contest.transport = options.transport;
  contest.bytes = barrier ? std::vector<std::uint64_t>{0} : parse_sizes(options.bytes);
  contest.buffers = parse_buffers(options, contest.collective);
  if (!options.against.empty()) contest.against = split_list(options.against, "--against");
  check_words(contest.against, Peer::known(), "peer");
  if (!options.algorithm.empty()) {
    contest.algorithms = parse_algorithms(options.algorithm, contest.collective, options.ranks);
  }
  contest.rounds = options.rounds;
  contest.repeats = options.repeats;
  return contest;
}

int run_bench(const Options& options) {
  const Contest contest = parse(options);
  std::optional<OutputFile> file;
  if (!options.svg.empty()) file.emplace(options.svg);
  const Interrupts interrupts;
  const Machine machine = Machine::here();
  std::optional<BenchTable> table;
  std::vector<Result> results;
  std::vector<LeftOut> missing;
  Progress progress("measuring");
  const auto on_size = [&](const std::vector<Result>& more) {
    results.insert(results.end(), more.begin(), more.end());
    progress.clear();
    if (options.json) return;
    if (!table) table.emplace(contest, machine, more);
    table->print(more);
  };
  const auto left_out = [&](const LeftOut& one) {
    progress.clear();
    fmt::print(stderr, "left out: {}\n", one.why);
    missing.push_back(one);
  };
  try {
    hold(contest, interrupts, on_size, progress.reporter(), left_out);
  } catch (const Interrupted& interrupted) {
    progress.clear();
    fmt::print(stderr, "trireme bench: {}; all ranks have been ended\n", interrupted.what());
    return interrupted.exit_status();
  }
  if (table) table->finish(results);
  if (options.json) print_json(bench_json(contest, machine, results, missing));
  if (file) file->save(draw_race(bench_race(contest, results), bench_caption(contest, machine)));
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Action& run) {
  auto* command =
      app.add_subcommand("bench", "Time a collective of real ranks on this machine, beside other libraries");
  command->footer(
      "Starts the ranks, and those of the peers, and keeps all of them; for each size each is timed in turn, round "
      "after\n"
      "round. A figure is the median over rounds of a round's median, on the slowest rank. Results are checked first.\n"
      "Buses' bandwidth counts as nccl-tests do: algorithm bandwidth times 2(P-1)/P for allreduce, (P-1)/P for\n"
      "reduce_scatter, allgather and all_to_all, 1 for the others. 'vs' a peer: above 1, Trireme is faster.\n"
      "Of several peers, those that are not there or can't do it are left out, and named on stderr.\n"
      "\n"
      "Examples:\n"
      "  trireme bench allreduce -n 2 --transport shm --against openmpi,probe\n"
      "  trireme bench allreduce -n 4 --transport tcp --bytes 1KiB,1MiB --against openmpi,gloo --json\n"
      "  trireme bench broadcast -n 4 --bytes 1KiB..16MiB --algorithm all --buffers window --svg race.svg");
  const auto options = std::make_shared<Options>();
  options->command = command;
  command->add_option("collective", options->collective, "allreduce, broadcast, ... ; 'trireme algorithms' shows them")
      ->required();
  command->add_option("-n,--ranks", options->ranks, "how many ranks to start")->type_name("P")->required();
  command->add_option("--transport", options->transport, "shm, tcp or auto: what ranks reach each other by")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--bytes", options->bytes, "of the whole buffer: 64MiB, a list 1KiB,1MiB, or a range by fours")
      ->type_name("SIZES")
      ->capture_default_str();
  command->add_option("--algorithm", options->algorithm, "names, or all that can run; without it, what selection takes")
      ->type_name("NAMES");
  command
      ->add_option("--buffers", options->buffers,
                   "window, ordinary or window,ordinary; without it both, but for tcp ordinary")
      ->type_name("KINDS");
  command->add_option("--against", options->against, fmt::format("peers: {}", fmt::join(Peer::known(), ", ")))
      ->type_name("NAMES");
  command->add_option("--repeats", options->repeats, "in all rounds together; without it what fits in 0.1 s a round")
      ->type_name("N");
  command->add_option("--rounds", options->rounds, "in which all are timed in turn")
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", options->json, "as JSON");
  command->add_option("--svg", options->svg, "draw time against bytes to this file")->type_name("FILE");
  command->callback([&run, options] { run = [options] { return run_bench(*options); }; });
}

}  // namespace trireme::cli
