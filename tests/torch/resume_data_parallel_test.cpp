// Training by DistributedDataParallel that is stopped and goes on ends with the same bits as training that is not. Its
// parameters get their gradients in another order than they are registered in, so that buckets are built anew after the
// first backward: what a rank adds up first depends on where gradients lie.
#include "support/run.h"
#include "torch/ranks.h"
#include "trireme/torch/checkpoint.h"
#include "trireme/torch/data_parallel.h"

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/torch.h>

namespace trireme::test {
namespace {

struct CrossedImpl : torch::nn::Module {
  CrossedImpl() : second(96, 40), first(6, 96), third(40, 1) {
    register_module("second", second);
    register_module("third", third);
    register_module("first", first);
  }
  torch::Tensor forward(const torch::Tensor& x) { return third(torch::tanh(second(torch::tanh(first(x))))); }
  torch::nn::Linear second, first, third;
};
TORCH_MODULE(Crossed);

/// The same for all ranks, which share one random generator here.
Crossed make_net() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(1);
  return {};
}

/// All parameters' bits after ten steps, of which the first are left out if the folder has them.
std::string train(Communicator& world, const std::string& folder, const DistributedDataParallelOptions& options) {
  Crossed net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Checkpoint checkpoint(world, folder, *net, {.optimizer = &optimizer});
  std::int64_t step = checkpoint.load_latest().value_or(0);
  DistributedDataParallel model(net, world, options);
  while (step < 10) {
    const torch::Tensor x =
        torch::sin(torch::arange(24) * 0.7 + static_cast<double>(step * 8 + world.rank())).view({4, 6});
    optimizer.zero_grad();
    torch::mse_loss(model(x), x.sum(1, true)).backward();
    optimizer.step();
    if (++step == 5) checkpoint.save(step);
  }
  std::string bits;
  for (const torch::Tensor& each : net->parameters()) {
    bits.append(static_cast<const char*>(each.data_ptr()), each.nbytes());
  }
  return bits;
}

TEST(ResumeDataParallel, EndsWithTheSameBits) {
  const std::vector<DistributedDataParallelOptions> all = {
      {}, {.first_bucket_bytes = 1, .bucket_bytes = 9000}, {.static_graph = true}, {.find_unused_parameters = true}};
  for (std::size_t which = 0; which < all.size(); ++which) {
    const TemporaryFolder folder;
    std::array<std::string, 2> bits;  // of the whole run, and of one that does its last steps again
    for (std::string& each : bits) {
      on_ranks(3, [&](Communicator& world) {
        const std::string mine = train(world, folder / "checkpoints", all[which]);
        if (world.rank() == 0) each = mine;
      });
    }
    EXPECT_TRUE(bits[0] == bits[1]) << "options " << which;
  }
}

/// Which part is used depends on the step; one never is.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() : early(6, 1), late(6, 1), never(6, 1) {
    register_module("early", early);
    register_module("late", late);
    register_module("never", never);
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& each : parameters()) each.copy_(torch::cos(torch::arange(each.numel())).view_as(each));
  }
  torch::Tensor forward(const torch::Tensor& x, bool first) { return first ? early(x) : late(x); }
  torch::nn::Linear early, late, never;
};
TORCH_MODULE(Branches);

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

struct Branched {
  std::vector<float> parameters = {};
  std::vector<bool> have_gradients = {};
  bool operator==(const Branched&) const = default;
};

/// The same as train() for branches: the first is used up to the second step, which is saved.
Branched train_branches(Communicator& world, const std::string& folder, const MakeOptimizer& make) {
  Branches net;
  const auto optimizer = make(net->parameters());
  Checkpoint checkpoint(world, folder, *net, {.optimizer = optimizer.get()});
  std::int64_t step = checkpoint.load_latest().value_or(0);
  DistributedDataParallel model(net, world, {.find_unused_parameters = true});
  while (step < 6) {
    const torch::Tensor x = torch::sin(torch::arange(12) + static_cast<double>(step * 8 + world.rank())).view({2, 6});
    optimizer->zero_grad();
    torch::mse_loss(model(x, step < 2), x.sum(1, true)).backward();
    optimizer->step();
    if (++step == 2) checkpoint.save(step);
  }
  Branched left;
  for (const torch::Tensor& each : net->parameters()) {
    left.parameters.insert(left.parameters.end(), each.data_ptr<float>(), each.data_ptr<float>() + each.numel());
    left.have_gradients.push_back(each.grad().defined());
  }
  return left;
}

// Momentum goes on moving a parameter that is used no more, as long as it has a gradient, if only of zeros.
TEST(ResumeDataParallel, EndsWithTheSameBitsIfParametersAreNotAlwaysUsed) {
  using namespace torch::optim;
  const std::vector<MakeOptimizer> all = {
      [](auto parameters) { return std::make_unique<SGD>(parameters, SGDOptions(0.1).momentum(0.9)); },
      [](auto parameters) { return std::make_unique<SGD>(parameters, SGDOptions(0.1).weight_decay(0.1)); },
      [](auto parameters) { return std::make_unique<Adam>(parameters, AdamOptions(0.1)); },
      [](auto parameters) { return std::make_unique<AdamW>(parameters, AdamWOptions(0.1)); }};
  for (std::size_t which = 0; which < all.size(); ++which) {
    const TemporaryFolder folder;
    std::array<std::vector<Branched>, 2> left;
    for (auto& ranks : left) {
      ranks.resize(3);
      on_ranks(3, [&](Communicator& world) {
        ranks[world.rank()] = train_branches(world, folder / "checkpoints", all[which]);
      });
    }
    EXPECT_TRUE(left[0] == left[1]) << "optimiser " << which;
    EXPECT_EQ(left[1][2].have_gradients, (std::vector<bool>{true, true, true, true, false, false}));
  }
}

}  // namespace
}  // namespace trireme::test
