// The subcommands of `trireme`. Each adds itself to the command line; if it is the one called, parsing leaves what is
// to be run in `run`, which returns the exit status: 0, 1 for a failed proof, or what the ranks it ran gave. Wrong use
// throws UsageError.
#pragma once

#include "trireme/error.h"

#include <CLI/CLI.hpp>

#include <functional>

namespace trireme::cli {

using Action = std::function<int()>;

/// A program was to be used that is wrong: exit status 1.
class FailedProof : public Error {
 public:
  using Error::Error;
};

void add_algorithms(CLI::App& app, Action& run);
void add_plan(CLI::App& app, Action& run);
void add_verify(CLI::App& app, Action& run);
void add_simulate(CLI::App& app, Action& run);
void add_choose(CLI::App& app, Action& run);
void add_race(CLI::App& app, Action& run);
void add_run(CLI::App& app, Action& run);
void add_host_agent(CLI::App& app, Action& run);
void add_bench(CLI::App& app, Action& run);
void add_bench_rank(CLI::App& app, Action& run);
void add_tune(CLI::App& app, Action& run);

}  // namespace trireme::cli
