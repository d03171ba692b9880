// Ranks that add up numbers without end, and one that does wrong on purpose: to see what the others, and the report of
// `trireme run`, say of it.
//   trireme run -n 4 build/examples/fault --kill 2 --after 1s
//   trireme run -n 4 build/examples/fault --stop 2 --deadline 3s
#include "trireme/communicator.h"
#include "trireme/units.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr const char* kUsage =
    "usage: fault [--kill R | --stop R | --stray R | --slow R] [--after TIME] [--deadline TIME] [--for TIME]\n"
    "  --kill R       rank R kills itself (SIGKILL)\n"
    "  --stop R       rank R stops itself (SIGSTOP)\n"
    "  --stray R      rank R goes on without the others, in its own code\n"
    "  --slow R       rank R comes 20 ms late to every operation\n"
    "  --after TIME   when that happens (1s); a slow rank is so from the start\n"
    "  --deadline TIME  how long an operation, or the start, may take (60s)\n"
    "  --for TIME     end in the orderly way after that time\n";

using Clock = std::chrono::steady_clock;

struct Options {
  std::string fault;
  int rank = -1;
  trireme::Seconds after{1};
  trireme::Seconds deadline{60};
  trireme::Seconds duration{3600};
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--kill" || name == "--stop" || name == "--stray" || name == "--slow") {
      options.fault = name.substr(2);
      options.rank = std::stoi(value);
    } else if (name == "--after") {
      options.after = trireme::parse_time(value);
    } else if (name == "--deadline") {
      options.deadline = trireme::parse_time(value);
    } else if (name == "--for") {
      options.duration = trireme::parse_time(value);
    } else {
      throw std::invalid_argument(name);
    }
  }
  return options;
}

void do_wrong(const std::string& fault) {
  std::printf("now: %s\n", fault.c_str());
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "stray") std::this_thread::sleep_for(std::chrono::hours(1));
}

void run(trireme::Communicator& world, const Options& options) {
  constexpr int kHistory = 16;  // operations that the report shows: nothing goes wrong before
  const auto begin = Clock::now();
  std::vector<float> values(1000, 1.0F);
  for (int rounds = 0;; ++rounds) {
    const trireme::Seconds time = Clock::now() - begin;
    const bool mine = world.rank() == options.rank;
    const bool now = time >= options.after && rounds >= kHistory;
    if (mine && options.fault != "slow" && now) do_wrong(options.fault);
    if (mine && options.fault == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // Rank 0 says when it is time to end, so that all do.
    values[0] = world.rank() == 0 && time >= options.duration ? 1.0F : 0.0F;
    world.allreduce(values, trireme::Op::max);
    if (values[0] == 1.0F) break;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  Options options;
  try {
    options = parse(argc, argv);
  } catch (const std::exception&) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  try {
    trireme::Communicator world =
        trireme::init({.patience = std::chrono::duration_cast<std::chrono::milliseconds>(options.deadline)});
    if (options.rank >= world.ranks()) {
      std::fprintf(stderr, "there is no rank %d among %d\n", options.rank, world.ranks());
      return 2;
    }
    run(world, options);
    return 0;
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
