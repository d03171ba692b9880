// What data-parallel training takes beyond a process that trains alone: one copy of the gradients while the first
// backward builds its buckets anew, and nothing after that, at no moment of a step. Memory is that of processes, as the
// system counts it.
#include "support/run.h"
#include "torch/processes.h"
#include "trireme/torch/data_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <torch/torch.h>

namespace trireme::test {
namespace {

constexpr double kMebi = 1024 * 1024;
constexpr int kLayers = 4;
constexpr std::int64_t kWidth = 2048;
constexpr double kGradients = 4.0 * kLayers * kWidth * kWidth / kMebi;

/// In MiB.
struct Used {
  double peak = 0;    ///< of all that was ever in memory at once, neighbours' gradients that were read too
  double later = 0;   ///< the same since the second step, without neighbours' gradients
  double kept = 0;    ///< after training, what is this process's own
  double window = 0;  ///< the part of it that neighbours can read
};

double status(const std::string& name) {
  std::ifstream lines("/proc/self/status");
  for (std::string word; lines >> word;) {
    double kibi = 0;
    if (word == name + ":" && lines >> kibi) return kibi / 1024;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

/// Of the file that this rank's windows lie in.
double memory_of_windows() {
  double bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat known {};
    if (target.find("memfd:trireme") == std::string::npos || ::stat(entry.path().c_str(), &known) != 0) continue;
    bytes += 512.0 * static_cast<double>(known.st_blocks);
  }
  return bytes / kMebi;
}

torch::nn::Sequential make_net() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i)
    net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
  return net;
}

template <typename Model>
Used train(torch::nn::Sequential& net, Model& model) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  double peak = 0;
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    model.forward(torch::ones({1, kWidth})).mean().backward();
    optimizer.step();
    if (step != 1) continue;
    // By now a neighbour's first buckets, which were read in place, are let go of here too.
    peak = status("VmHWM");
    std::ofstream reset("/proc/self/clear_refs");  // makes the peak what there is now
    EXPECT_TRUE((reset << 5 << std::flush).good());
  }
  const double since = status("VmHWM"), window = memory_of_windows();
  const double read_in_place = status("RssShmem") - window;
  return {.peak = std::max(peak, since),
          .later = since - read_in_place,
          .kept = status("RssAnon") + window,
          .window = window};
}

TEST(Memory, BeyondAProcessAloneIsOneCopyOfGradients) {
  if (const char* result = std::getenv("TRIREME_TEST_RESULT")) {
    torch::nn::Sequential net = make_net();
    Communicator world = init();
    Used used;
    if (world.ranks() == 1) {
      used = train(net, *net);
    } else {
      DistributedDataParallel model(net, world);
      used = train(net, model);
    }
    std::ofstream(result + std::to_string(world.rank()))
        << used.peak << ' ' << used.later << ' ' << used.kept << ' ' << used.window;
    return;
  }
  const auto start = [](int ranks) {
    const TemporaryFolder folder;
    // Memory that is given back goes back to the system at once: so the system's count is that of what is in use.
    start_ranks(ranks, "Memory.BeyondAProcessAloneIsOneCopyOfGradients",
                {"TRIREME_TEST_RESULT=" + folder / "", "MALLOC_MMAP_THRESHOLD_=1000000",
                 "ASAN_OPTIONS=quarantine_size_mb=0:detect_leaks=0"});
    std::vector<Used> all(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      std::istringstream(read_whole(folder / std::to_string(rank))) >> all[rank].peak >> all[rank].later >>
          all[rank].kept >> all[rank].window;
    }
    return all;
  };
  constexpr double kRest = kGradients / 4;  // messages under way, the communicator's own, the allocator's leftovers
  const Used alone = start(1)[0];
  EXPECT_GE(alone.kept, 2 * kGradients);
  // On a busy machine a neighbour may let go of what was read in place later than that: then once more.
  std::vector<Used> ranks = start(2);
  const auto is_late = [&](const Used& rank) { return rank.later > alone.later + kRest; };
  for (int tries = 0; tries < 4 && std::ranges::any_of(ranks, is_late); ++tries) ranks = start(2);
  for (const Used& rank : ranks) {
    EXPECT_LE(rank.peak, alone.peak + kGradients);
    EXPECT_LE(rank.later, alone.later + kRest);
    EXPECT_LE(rank.kept, alone.kept + kRest);
    EXPECT_GE(rank.window, kGradients);
  }
}

}  // namespace
}  // namespace trireme::test
