// trireme run: the ranks of a program, on this machine or on several.
#include "cli/commands.h"
#include "cli/launcher.h"
#include "trireme/error.h"
#include "trireme/units.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

namespace trireme::cli {
namespace {

struct Options {
  const CLI::App* command = nullptr;
  int ranks = 0;
  bool no_prefix = false;
  bool no_pin = false;
  bool encrypt = false;
  std::string grace = "5s";
  std::string timeout;
  bool report = false;
  std::string report_file;
  std::vector<std::string> variables;
  std::string hosts;
  std::string hostfile;
  std::string agent;
  std::string agent_program;
  std::string interface;
  std::string address;
  std::string ports;
};

// What follows the options is not CLI11's, so that it does not know of it.
class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "Usage: trireme run -n RANKS [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n"
           "       trireme run --hosts HOST:RANKS,... [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n";
  }
};

// CLI11 gives what follows a '--' back to the command before, unless this one still waits for an argument. So it waits
// for one, which nothing can be: the program stays what is left over.
void keep_what_follows_dashes(CLI::App& command) {
  command.add_option("program")->group("")->check([](const std::string&) { return std::string("left over"); });
  command.validate_positionals();
}

std::vector<HostSlots> hosts_of(const Options& options) {
  if (!options.hosts.empty() && !options.hostfile.empty()) {
    throw UsageError("run: give --hosts or --hostfile, not both");
  }
  if (!options.hosts.empty()) return parse_hosts(options.hosts);
  if (!options.hostfile.empty()) return read_hostfile(options.hostfile);
  for (const auto& [name, value] : {std::pair{"--agent", options.agent},
                                    {"--agent-program", options.agent_program},
                                    {"--address", options.address}}) {
    if (!value.empty())
      throw UsageError(fmt::format("run: {} is for ranks on hosts: give --hosts or --hostfile", name));
  }
  return {};
}

// Those of this process that ranks on other hosts get too, but not where another launcher's ranks meet.
bool is_passed_on(std::string_view variable) {
  if (variable.starts_with("TRIREME_RENDEZVOUS=") || variable.starts_with("TRIREME_BOARD=")) return false;
  for (const std::string_view prefix : {"TRIREME_", "OMP_", "OPENBLAS_", "MKL_"}) {
    if (variable.starts_with(prefix)) return true;
  }
  return false;
}

// The launcher itself has to know these, or to set them, and gives them to all ranks.
void refuse_own(const std::string& variable) {
  const std::string name = variable.substr(0, variable.find('='));
  for (const char* const own : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                "TRIREME_RENDEZVOUS", "TRIREME_BOARD"}) {
    if (name == own) throw UsageError(fmt::format("run: --env {}: 'trireme run' sets it itself, for each rank", name));
  }
  if (name == "TRIREME_ENCRYPT") {
    throw UsageError(fmt::format("run: --env {}: the launcher and all ranks have to do the same: use --encrypt", name));
  }
  if (name == "TRIREME_SECRET" || name == "TRIREME_SECRET_FILE") {
    throw UsageError(
        fmt::format("run: --env {0}: the launcher needs it too, and other users see a command line: export {0} before "
                    "'trireme run', which passes it on",
                    name));
  }
}

std::vector<std::string> variables_of(const Options& options, bool elsewhere) {
  std::vector<std::string> variables;
  for (char** variable = environ; elsewhere && *variable != nullptr; ++variable) {
    if (is_passed_on(*variable)) variables.emplace_back(*variable);
  }
  const auto set = [&](const std::string& variable) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(variables, [&](const std::string& old) { return old.starts_with(name); });
    variables.push_back(variable);
  };
  if (!options.interface.empty()) set("TRIREME_INTERFACE=" + options.interface);
  if (!options.ports.empty()) set("TRIREME_PORTS=" + options.ports);
  for (const std::string& variable : options.variables) {
    if (variable.empty() || variable.front() == '=') {
      throw UsageError(fmt::format("run: --env '{}': a variable has a name, as in --env NAME=1", variable));
    }
    refuse_own(variable);
    if (variable.find('=') != std::string::npos) {
      set(variable);
    } else if (const char* const value = std::getenv(variable.c_str())) {  // NOLINT(concurrency-mt-unsafe): as it was
      set(variable + "=" + value);
    } else {
      throw UsageError(fmt::format("run: --env {0}: it is not set here; give it a value, as in --env {0}=1", variable));
    }
  }
  return variables;
}

// What an option says, or an error that names it.
template <typename Parse>
auto value_of(const std::string& option, const Parse& parse) {
  try {
    return parse();
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("run: {}: {}", option, error.what()));
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

void choose_hosts(const Options& options, Launch& launch_options) {
  launch_options.ranks = options.ranks;
  const std::vector<HostSlots> hosts = hosts_of(options);
  if (!hosts.empty()) {
    const bool all = options.command->get_option("--ranks")->count() == 0;
    if (!all && options.ranks < 1) throw UsageError(fmt::format("run: -n {} is beyond reason", options.ranks));
    launch_options.hosts = fill_hosts(hosts, all ? 0 : options.ranks);
    launch_options.ranks = 0;
    for (const HostSlots& host : launch_options.hosts) launch_options.ranks += host.slots;
  } else if (options.command->get_option("--ranks")->count() == 0) {
    throw UsageError("run: say how many ranks with --ranks, or where with --hosts or --hostfile");
  }
  if (launch_options.ranks < 1 || launch_options.ranks > kMostRanks) {
    throw UsageError(fmt::format("run: -n {} is beyond reason: give 1 to {} ranks", launch_options.ranks, kMostRanks));
  }
  launch_options.agent = words_of(options.agent);
  if (launch_options.agent.empty() && options.command->get_option("--agent")->count() > 0) {
    throw UsageError("run: --agent is empty: give a command that is called with a host and a command to run there");
  }
  launch_options.agent_program =
      options.agent_program.empty() ? std::filesystem::read_symlink("/proc/self/exe").string() : options.agent_program;
  launch_options.interface = options.interface;
  launch_options.address = options.address;
  if (!options.ports.empty()) {
    launch_options.ports = value_of("--ports", [&] { return rendezvous::parse_ports(options.ports); });
  }
  launch_options.variables = variables_of(options, !hosts.empty());
}

int run_program(const Options& options) {
  Launch launch_options;
  launch_options.command = options.command->remaining();
  const bool dashes = !launch_options.command.empty() && launch_options.command.front() == "--";
  if (dashes) launch_options.command.erase(launch_options.command.begin());
  if (launch_options.command.empty()) {
    throw UsageError("run: give a program to run, as in 'trireme run -n 4 ./program'");
  }
  if (!dashes && launch_options.command.front().starts_with('-')) {
    throw UsageError(
        fmt::format("run: no option is called '{}'; see 'trireme run --help'", launch_options.command.front()));
  }
  choose_hosts(options, launch_options);
  launch_options.prefix = !options.no_prefix;
  launch_options.pin = !options.no_pin;
  launch_options.encrypt = options.encrypt;
  launch_options.grace = value_of("--grace", [&] { return parse_time(options.grace); });
  if (!options.timeout.empty()) {
    launch_options.timeout = value_of("--timeout", [&] { return parse_time(options.timeout); });
    if (launch_options.timeout == Seconds(0)) {
      throw UsageError(
          fmt::format("run: --timeout {}: no run ends in no time; leave it out to wait for ever", options.timeout));
    }
  }
  launch_options.report = options.report;
  launch_options.report_file = options.report_file;
  return launch(launch_options);
}

}  // namespace

void add_run(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("run", "Start the ranks of a program, on this machine or on several");
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
      "When a rank fails, the others have 1.5 s for their last words and are ended, and a table says what each did\n"
      "last; the same is in a file, as JSON. The exit status is that of the first to fail (128 + signal for one that "
      "was\n"
      "killed), 124 after --timeout, 126 or 127 for a program that can't be started, 2 for wrong use.\n"
      "\n"
      "On several hosts, 'ssh HOST trireme host-agent' (or what --agent says) has to work without questions. The "
      "program\n"
      "and the present folder have to be there too. Of the environment ranks there get TRIREME_*, OMP_*, OPENBLAS_* "
      "and\n"
      "MKL_*, and what --env names. When the launcher or a connection ends, so do all ranks. 'localhost' is this "
      "machine,\n"
      "without ssh.\n"
      "\n"
      "Examples:\n"
      "  trireme run -n 4 ./program --epochs 3\n"
      "  trireme run --hosts node1:4,node2:4 ./program\n"
      "  trireme run -n 2 --timeout 60s --no-prefix sh -c 'echo rank $RANK of $WORLD_SIZE'");
  const auto options = std::make_shared<Options>();
  options->command = command;
  command->add_option("-n,--ranks", options->ranks, "how many ranks to start (all that the hosts have room for)")
      ->type_name("P");
  command->add_flag("--no-prefix", options->no_prefix, "pass output on as it is, without '[rank] ' before each line");
  command->add_flag("--no-pin", options->no_pin, "let ranks share all cores, even if there is one for each");
  command->add_flag(
      "--encrypt", options->encrypt,
      "encrypt what ranks say to each other over TCP, with TLS 1.3; a fast network is several times slower by it");
  command->add_option("--grace", options->grace, "how long ranks may take to end before they are killed")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "end the run after this time")->type_name("TIME");
  command->add_flag("--report", options->report,
                    "say at the end what each rank did last, and who kept the others waiting");
  command
      ->add_option("--report-file", options->report_file,
                   "write the report to this file, as JSON, or to none (trireme-report-PID.json, when a run fails)")
      ->type_name("FILE")
      ->envname("TRIREME_REPORT_FILE");
  command->add_option("--env", options->variables, "a variable for all ranks; without a value, that which it has here")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  command->add_option("--hosts", options->hosts, "where to run, and how many ranks on each: a:2,b:2")
      ->type_name("LIST");
  command->add_option("--hostfile", options->hostfile, "the same in a file, a host a line: 'a', 'a:2' or 'a slots=2'")
      ->type_name("FILE");
  command
      ->add_option("--agent", options->agent,
                   "what runs a command on a host, called with the host and the command (ssh)")
      ->type_name("COMMAND");
  command->add_option("--agent-program", options->agent_program, "trireme, as it is called on the hosts (as here)")
      ->type_name("PATH");
  command
      ->add_option("--interface", options->interface,
                   "which network to use: an interface, an address, a network (10.0.0.0/8), or ^NAME for any other")
      ->type_name("WHICH");
  command->add_option("--address", options->address, "the address of this machine at which hosts find it")
      ->type_name("ADDRESS");
  command->add_option("--ports", options->ports, "at which ports to listen, as for a firewall: 20000-20100")
      ->type_name("RANGE");
  command->prefix_command();
  keep_what_follows_dashes(*command);
  command->callback([&run, options] { run = [options] { return run_program(*options); }; });
}

}  // namespace trireme::cli
