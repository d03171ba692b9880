// The command-line front of Trireme.
#include "cli/commands.h"
#include "trireme/error.h"
#include "trireme/names.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <system_error>

namespace {

constexpr int kUsage = 2;

int fail(const std::string& message, int status = kUsage) {
  fmt::print(stderr, "trireme: {}\n", message);
  return status;
}

// CLI11 speaks of what was not expected; a mistyped command deserves the nearest one instead.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  std::string message = error.what();
  message = message.substr(0, message.find('\n'));
  if (!app.get_subcommands().empty()) {
    return fmt::format("{0}: {1}; see 'trireme {0} --help'", app.get_subcommands().front()->get_name(), message);
  }
  if (argc < 2) return "give a command; 'trireme --help' lists them";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  const std::string guess = trireme::nearest(argv[1], names);
  if (guess.empty()) return fmt::format("no command is called '{}'; 'trireme --help' lists them", argv[1]);
  return fmt::format("no command is called '{}'; did you mean '{}'?", argv[1], guess);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trireme: allreduce and the other collectives as programs, proven, simulated, drawn and chosen.",
               "trireme");
  app.footer("trireme COMMAND --help shows a command's options and an example.");
  app.set_version_flag("--version", TRIREME_VERSION);
  app.require_subcommand(1);
  trireme::cli::Action run;
  trireme::cli::add_algorithms(app, run);
  trireme::cli::add_plan(app, run);
  trireme::cli::add_verify(app, run);
  trireme::cli::add_simulate(app, run);
  trireme::cli::add_choose(app, run);
  trireme::cli::add_race(app, run);
  trireme::cli::add_run(app, run);
  trireme::cli::add_host_agent(app, run);
  trireme::cli::add_bench(app, run);
  trireme::cli::add_bench_rank(app, run);
  trireme::cli::add_tune(app, run);
  try {
    app.parse(argc, argv);
    const int status = run();
    if (std::fflush(stdout) != 0) return fail("the output could not be written");
    return status;
  } catch (const CLI::Success& success) {
    const int status = app.exit(success);
    return std::cout.flush() ? status : fail("the output could not be written");
  } catch (const std::system_error& error) {
    return fail(fmt::format("the output could not be written: {}", error.code().message()));
  } catch (const CLI::ParseError& error) {
    return fail(explain(app, error, argc, argv));
  } catch (const trireme::cli::FailedProof& error) {
    return fail(error.what(), 1);
  } catch (const trireme::Error& error) {
    return fail(error.what());
  } catch (const std::bad_alloc&) {
    return fail("there is not enough memory for so many ranks or segments");
  } catch (const std::exception& error) {
    return fail(fmt::format("a defect in trireme itself: {}", error.what()));
  }
}
