// Benchmarks: one line a figure, `name value`, with the unit at the end of the name. Medians of several runs.
#include "figures.h"
#include "trireme/algorithms.h"
#include "trireme/choose.h"
#include "trireme/simulate.h"
#include "trireme/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <regex>
#include <string>
#include <sys/resource.h>
#include <utility>
#include <vector>

namespace trireme {
namespace {

double seconds_of(const std::function<void()>& work) {
  constexpr int kRuns = 5;
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
}

Simulated run(const std::string& name, const Setting& setting) {
  const Algorithm& algorithm = find_algorithm(name);
  const auto network = make_switch(total_ranks(algorithm, setting), {});
  return simulate(algorithm, setting, *network, {.bytes = 16 << 20});
}

double seconds(const std::string& name, const Setting& setting) {
  return seconds_of([&] { run(name, setting); });
}

double million_steps_per_second(const std::string& name, const Setting& setting) {
  const auto steps = static_cast<double>(run(name, setting).steps);
  return steps / seconds(name, setting) / 1e6;
}

// The most memory that the process has had so far: so this figure comes first.
double peak_mebibytes(const std::string& name, const Setting& setting) {
  run(name, setting);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void prove_all(int ranks) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.accepts(ranks)) verify(make_schedule(algorithm, {.ranks = ranks}));
  }
}

std::vector<Figure> simulator_figures() {
  const Setting ring{.ranks = 1024};
  const Setting tree{.ranks = 65536, .segments = 8};
  return {
      {"simulate_ring_1024_peak_mebibytes", [=] { return peak_mebibytes("ring", ring); }},
      {"simulate_ring_1024_seconds", [=] { return seconds("ring", ring); }},
      {"simulate_ring_1024_million_steps_per_second", [=] { return million_steps_per_second("ring", ring); }},
      {"simulate_butterfly_1024_million_steps_per_second", [=] { return million_steps_per_second("butterfly", ring); }},
      {"simulate_double_binary_tree_65536_seconds", [=] { return seconds("double_binary_tree", tree); }},
      {"simulate_double_binary_tree_65536_million_steps_per_second",
       [=] { return million_steps_per_second("double_binary_tree", tree); }},
      {"simulate_double_binary_tree_65536_peak_mebibytes", [=] { return peak_mebibytes("double_binary_tree", tree); }},
      {"verify_all_on_64_ranks_seconds", [] { return seconds_of([] { prove_all(64); }); }},
      {"choose_64_ranks_16MiB_seconds",
       [] {
         const Topology topology;
         return seconds_of([&] { choose({.topology = &topology, .setting = {.ranks = 64}, .bytes = 16 << 20}); });
       }},
  };
}

std::vector<Figure> figures() {
  std::vector<Figure> all = simulator_figures();
  for (Figure& figure : kernel_figures()) all.push_back(std::move(figure));
  for (Figure& figure : collective_figures()) all.push_back(std::move(figure));
  for (Figure& figure : recorder_figures()) all.push_back(std::move(figure));
  for (Figure& figure : host_figures()) all.push_back(std::move(figure));
#ifdef TRIREME_PYTORCH_DDP
  for (Figure& figure : training_figures()) all.push_back(std::move(figure));
#endif
  return all;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const bool valid = argc == 1 || (argc == 3 && std::string(argv[1]) == "--only");
  if (!valid) {
    fmt::print(stderr, "usage: trireme_bench [--only REGEX]\n");
    return 2;
  }
  try {
    const std::regex only(argc == 3 ? argv[2] : ".*");
    bool any = false;
    bool failed = false;
    for (const trireme::Figure& figure : trireme::figures()) {
      if (!std::regex_search(figure.name, only)) continue;
      any = true;
      try {
        fmt::print("{} {:.4g}\n", figure.name, figure.measure());
        std::fflush(stdout);
      } catch (const trireme::Error& error) {
        fmt::print(stderr, "{}: {}\n", figure.name, error.what());
        failed = true;
      }
    }
    if (!any) {
      fmt::print(stderr, "no figure's name matches '{}'\n", argv[2]);
      return 2;
    }
    return failed ? 1 : 0;
  } catch (const std::regex_error&) {
    fmt::print(stderr, "'{}' is not a regular expression\n", argv[2]);
    return 2;
  }
}
