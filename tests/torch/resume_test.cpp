// Training that is stopped and goes on ends with the same bits as training that is not: with dropout, batch norm, Adam
// and a shuffling sampler, in the middle of epochs and at their ends.
#include "support/run.h"
#include "torch/processes.h"
#include "torch/ranks.h"
#include "trireme/torch/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <torch/torch.h>

namespace trireme::test {
namespace {

constexpr std::size_t kSamples = 43;
constexpr int kSteps = 14;

struct Waves : torch::data::datasets::Dataset<Waves> {
  torch::data::Example<> get(std::size_t index) override {
    const auto x = (torch::arange(6, torch::kFloat) * static_cast<double>(index + 1)).sin();
    return {x, x.sum().reshape({1})};
  }
  torch::optional<std::size_t> size() const override { return kSamples; }
};

struct Plan {
  std::string folder;
  int until = kSteps;
  int save_at = -1;
  double dropout = 0;
  int seed = 7;
};

/// What is left of a run: the bytes of model and optimiser, and the losses since its start.
struct Left {
  std::string bytes;
  std::vector<double> losses;
};

Left train(Communicator world, const Plan& plan) {
  // The ranks of one process have one generator between them.
  static std::mutex one_at_a_time;
  torch::nn::Sequential net = nullptr;
  {
    const std::lock_guard lock(one_at_a_time);
    torch::manual_seed(plan.seed);
    net = torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::ReLU(),
                                torch::nn::Dropout(plan.dropout), torch::nn::Linear(8, 1));
    if (plan.dropout > 0) torch::manual_seed(plan.seed + 100 * world.rank());
  }
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01).amsgrad(true));
  DistributedSampler sampler(kSamples, world, {.seed = 5});
  auto loader = torch::data::make_data_loader(Waves().map(torch::data::transforms::Stack<>()), sampler, 4);
  Checkpoint checkpoint(world, plan.folder, *net, {.optimizer = &optimizer, .sampler = &sampler});

  Left left;
  auto step = static_cast<int>(checkpoint.load_latest().value_or(0));
  for (std::size_t epoch = sampler.epoch(); step < plan.until; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(net->forward(batch.data), batch.target);
      loss.backward();
      // Named, so that both runs add in the same order even if somebody tunes this machine between them.
      const CallOptions ring{.algorithm = "ring"};
      for (auto& parameter : net->parameters()) {
        const auto gradient = parameter.grad();
        world.allreduce(Buffer(gradient.data_ptr(), gradient.numel(), Dtype::f32), Op::average, ring);
      }
      optimizer.step();
      left.losses.push_back(loss.item<double>());
      ++step;
      if (step == plan.save_at) checkpoint.save(step);
      if (step == plan.until) break;
    }
  }
  const auto add = [&](const torch::Tensor& tensor) {
    left.bytes.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  };
  for (const auto& parameter : net->parameters()) add(parameter);
  // Without a broadcast of buffers each rank has its own, and rank 0's are saved.
  for (const auto& buffer : net->buffers()) {
    if (world.rank() == 0) add(buffer);
  }
  for (const auto& group : optimizer.param_groups()) {
    left.bytes += std::to_string(static_cast<const torch::optim::AdamOptions&>(group.options()).lr());
  }
  return left;
}

std::vector<Left> train_threads(int ranks, const Plan& plan) {
  std::vector<Left> left(ranks);
  on_ranks(ranks, [&](Communicator& world) { left[world.rank()] = train(world, plan); });
  return left;
}

class Resume : public ::testing::TestWithParam<int> {};

TEST_P(Resume, EndsWithTheSameBits) {
  const int ranks = GetParam();
  const double dropout = ranks == 1 ? 0.3 : 0;
  const TemporaryFolder folder;
  const auto whole = train_threads(ranks, {.folder = folder / "none", .dropout = dropout});
  ASSERT_EQ(whole[0].losses.size(), static_cast<std::size_t>(kSteps));
  for (int stop = 1; stop < kSteps; ++stop) {
    const std::string there = folder / std::to_string(stop);
    // It stops some steps after it saved: those are done again.
    train_threads(ranks, {.folder = there, .until = std::min(stop + 2, kSteps), .save_at = stop, .dropout = dropout});
    const auto rest = train_threads(ranks, {.folder = there, .dropout = dropout, .seed = 1234});
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(rest[rank].losses, std::vector<double>(whole[rank].losses.begin() + stop, whole[rank].losses.end()));
      EXPECT_TRUE(rest[rank].bytes == whole[rank].bytes) << "rank " << rank << ", stopped at " << stop;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Resume, ::testing::Values(1, 3));

// Each rank with a generator of its own needs a process of its own: this test starts itself three times.
TEST(ResumeProcesses, EndWithTheSameBitsEachWithItsOwnDropout) {
  if (const char* result = std::getenv("TRIREME_TEST_RESULT")) {
    const auto number = [](const char* name) { return std::atoi(std::getenv(name)); };
    Communicator world = init();
    const Left left = train(world, {.folder = std::getenv("TRIREME_TEST_FOLDER"),
                                    .until = number("TRIREME_TEST_UNTIL"),
                                    .save_at = number("TRIREME_TEST_SAVE_AT"),
                                    .dropout = 0.3,
                                    .seed = number("TRIREME_TEST_SEED")});
    std::ofstream(result + std::to_string(world.rank())) << left.bytes;
    return;
  }
  const TemporaryFolder folder;
  const auto start = [&](const std::string& there, int until, int save_at, int seed) {
    start_ranks(3, "ResumeProcesses.EndWithTheSameBitsEachWithItsOwnDropout",
                {"TRIREME_TEST_RESULT=" + there + "-result-", "TRIREME_TEST_FOLDER=" + there,
                 "TRIREME_TEST_UNTIL=" + std::to_string(until), "TRIREME_TEST_SAVE_AT=" + std::to_string(save_at),
                 "TRIREME_TEST_SEED=" + std::to_string(seed)});
    std::vector<std::string> results;
    for (int rank = 0; rank < 3; ++rank) results.push_back(read_whole(there + "-result-" + std::to_string(rank)));
    return results;
  };
  const auto whole = start(folder / "whole", kSteps, -1, 7);
  start(folder / "stopped", 7, 6, 7);
  const auto rest = start(folder / "stopped", kSteps, -1, 1234);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_FALSE(whole[rank].empty());
    EXPECT_TRUE(rest[rank] == whole[rank]) << "rank " << rank;
  }
}

}  // namespace
}  // namespace trireme::test
