// trireme run: the ranks of a program on this machine.
#include "cli/commands.h"
#include "cli/launcher.h"
#include "trireme/error.h"
#include "trireme/units.h"

#include <fmt/format.h>

#include <memory>
#include <string>

namespace trireme::cli {
namespace {

constexpr int kMostRanks = 10'000;

struct Options {
  const CLI::App* command = nullptr;
  int ranks = 0;
  bool no_prefix = false;
  bool no_pin = false;
  bool encrypt = false;
  std::string grace = "5s";
  std::string timeout;
};

// What follows the options is not CLI11's, so that it does not know of it.
class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "Usage: trireme run -n RANKS [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

// CLI11 gives what follows a '--' back to the command before, unless this one still waits for an argument. So it waits for
// one, which nothing can be: the program stays what is left over.
void keep_what_follows_dashes(CLI::App& command) {
  command.add_option("program")->group("")->check([](const std::string&) { return std::string("left over"); });
  command.validate_positionals();
}

int run_program(const Options& options) {
  Launch launch_options;
  launch_options.command = options.command->remaining();
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    throw UsageError(fmt::format("run: -n {} is beyond reason: give 1 to {} ranks", options.ranks, kMostRanks));
  }
  const bool dashes = !launch_options.command.empty() && launch_options.command.front() == "--";
  if (dashes) launch_options.command.erase(launch_options.command.begin());
  if (launch_options.command.empty()) {
    throw UsageError("run: give a program to run, as in 'trireme run -n 4 ./program'");
  }
  if (!dashes && launch_options.command.front().starts_with('-')) {
    throw UsageError(
        fmt::format("run: no option is called '{}'; see 'trireme run --help'", launch_options.command.front()));
  }
  launch_options.ranks = options.ranks;
  launch_options.prefix = !options.no_prefix;
  launch_options.pin = !options.no_pin;
  launch_options.encrypt = options.encrypt;
  launch_options.grace = parse_time(options.grace);
  if (!options.timeout.empty()) launch_options.timeout = parse_time(options.timeout);
  return launch(launch_options);
}

}  // namespace

void add_run(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("run", "Start the ranks of a program on this machine");
  command->formatter(std::make_shared<Formatter>());
  command->footer(
      "All that follows PROGRAM is its own. Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
      "MASTER_ADDR,\n"
      "MASTER_PORT and TRIREME_RENDEZVOUS in its environment, and, where you have not set them, OMP_NUM_THREADS and\n"
      "OPENBLAS_NUM_THREADS as cores / ranks. TRIREME_SECRET is a secret of this job alone, unless you have set it or\n"
      "TRIREME_SECRET_FILE: who can't prove it is kept out of all connections. Rank 0 reads the standard input. "
      "Signals\n"
      "are passed on to all ranks.\n"
      "\n"
      "When a rank fails, the others are ended. The exit status is that of the first to fail (128 + signal for one "
      "that\n"
      "was killed), 124 after --timeout, 126 or 127 for a program that can't be started, 2 for wrong use.\n"
      "\n"
      "Examples:\n"
      "  trireme run -n 4 ./program --epochs 3\n"
      "  trireme run -n 2 --timeout 60s --no-prefix sh -c 'echo rank $RANK of $WORLD_SIZE'");
  const auto options = std::make_shared<Options>();
  options->command = command;
  command->add_option("-n,--ranks", options->ranks, "how many ranks to start")->type_name("P")->required();
  command->add_flag("--no-prefix", options->no_prefix, "pass output on as it is, without '[rank] ' before each line");
  command->add_flag("--no-pin", options->no_pin, "let ranks share all cores, even if there is one for each");
  command->add_flag("--encrypt", options->encrypt, "encrypt what ranks say to each other over TCP, with TLS 1.3");
  command->add_option("--grace", options->grace, "how long ranks may take to end before they are killed")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "end the run after this time")->type_name("TIME");
  command->prefix_command();
  keep_what_follows_dashes(*command);
  command->callback([&run, options] { run = [options] { return run_program(*options); }; });
}

}  // namespace trireme::cli
