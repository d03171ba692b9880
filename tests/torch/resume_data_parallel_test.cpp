// Training by DistributedDataParallel that is stopped and goes on ends with the same bits as training that is not. Its
// parameters get their gradients in another order than they are registered in, so that buckets are built anew after the
// first backward: what a rank adds up first depends on where gradients lie.
#include "support/run.h"
#include "torch/ranks.h"
#include "trireme/torch/checkpoint.h"
#include "trireme/torch/data_parallel.h"

#include <array>
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

}  // namespace
}  // namespace trireme::test
