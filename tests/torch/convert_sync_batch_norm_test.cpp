// Batch norms in modules that users wrote, made synchronous where they are.
#include "torch/ranks.h"
#include "trireme/torch/sync_batch_norm.h"

#include <gtest/gtest.h>

#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <torch/torch.h>
#include <vector>

namespace trireme::test {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

// What a user writes: holders as members, which forward calls; containers; a class in a class.
struct BlockImpl : nn::Module {
  BlockImpl() : norm(nn::BatchNormOptions(4).eps(1e-3).momentum(0.3)) {
    register_module("convolution", convolution);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) { return torch::relu(norm(convolution(x))) + x; }

  nn::Conv2d convolution{nn::Conv2dOptions(4, 4, 3).padding(1)};
  nn::BatchNorm2d norm;
};
TORCH_MODULE(Block);

struct Net : nn::Module {
  Net() {
    register_module("block", block);
    register_module("volumes", volumes);
    register_module("flat", flat);
    register_module("head", head);
  }
  Tensor forward(Tensor x) {
    x = block(x).unsqueeze(-1);
    for (const auto& each : *volumes) x = each->as<nn::BatchNorm3d>()->forward(x);
    return head->forward(flat(x.flatten(1))).squeeze(1);
  }

  Block block;
  nn::ModuleList volumes{nn::BatchNorm3d(4), nn::BatchNorm3d(nn::BatchNormOptions(4).affine(false))};
  nn::BatchNorm1d flat{nn::BatchNormOptions(4 * 9).track_running_stats(false)};
  nn::Sequential head{nn::Linear(36, 5), nn::BatchNorm1d(nn::BatchNormOptions(5).momentum(c10::nullopt)), nn::Tanh(),
                      nn::BatchNorm1d(5), nn::Linear(5, 1)};
};

// The same in each thread, which have one random generator together.
std::shared_ptr<Net> make_net() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  net->to(torch::kDouble);
  return net;
}

Tensor make_batch() {
  torch::manual_seed(4);
  return torch::randn({10, 4, 3, 3}, torch::kDouble);
}

// Ranks have 3 and 7 of the 10 samples.
Tensor share(const Tensor& batch, const Communicator& world) {
  return world.rank() == 0 ? batch.narrow(0, 0, 3) : batch.narrow(0, 3, 7);
}

double difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(ConvertSyncBatchNorm, TrainsAUsersClassAsOnTheJoinedBatch) {
  const auto expected = make_net();
  const Tensor batch = make_batch();
  const Tensor output = expected->forward(batch);
  output.square().sum().backward();
  on_ranks(2, [&](Communicator& world) {
    const auto net = make_net();
    EXPECT_EQ(convert_sync_batch_norm(net, world), 6);
    EXPECT_EQ(convert_sync_batch_norm(*net, world), 0) << "they are converted already";
    const Tensor mine = net->forward(share(batch, world));
    EXPECT_LE(difference(mine, share(output.detach(), world)), 1e-11);
    mine.square().sum().backward();
    for (const auto& parameter : net->named_parameters()) {
      Tensor gradient = parameter->grad().contiguous().clone();
      world.allreduce(std::span(gradient.data_ptr<double>(), gradient.numel()));
      EXPECT_LE(difference(gradient, expected->named_parameters()[parameter.key()].grad()), 1e-9) << parameter.key();
    }
    EXPECT_EQ(net->named_buffers().keys(), expected->named_buffers().keys());
    for (const auto& buffer : net->named_buffers()) {
      EXPECT_LE(difference(*buffer, expected->named_buffers()[buffer.key()]), 1e-11) << buffer.key();
    }
  });
}

TEST(ConvertSyncBatchNorm, KeepsModeOptionsAndSaving) {
  const Tensor batch = make_batch();
  const auto plain = make_net();
  plain->forward(batch);
  plain->eval();
  const Tensor output = plain->block(batch);
  std::stringstream saved;
  torch::save(plain, saved);
  const std::string bytes = saved.str();
  on_ranks(2, [&](Communicator& world) {
    const auto net = make_net();
    net->eval();
    convert_sync_batch_norm(net, world);
    EXPECT_FALSE(net->is_training());
    EXPECT_FALSE(net->block->norm->is_training());
    std::stringstream mine(bytes);
    auto loaded = net;
    torch::load(loaded, mine);
    // In eval mode a rank may go alone.
    if (world.rank() == 0) {
      EXPECT_TRUE(net->block(batch).equal(output));
      net->forward(batch);
    }

    // Other values and dtypes in the same tensors: still synchronous.
    net->train();
    net->to(torch::kFloat);
    net->block->norm(share(batch, world).to(torch::kFloat));
    nn::BatchNorm2d expected(nn::BatchNormOptions(4).eps(1e-3).momentum(0.3));
    expected->running_mean.copy_(plain->block->norm->running_mean);
    expected(batch.to(torch::kFloat));
    EXPECT_LE(difference(net->block->norm->running_mean, expected->running_mean), 1e-6);

    // Without autograd too.
    const c10::InferenceMode inference;
    const Tensor inferred = net->block->norm(share(batch, world).to(torch::kFloat));
    EXPECT_LE(difference(inferred, share(expected(batch.to(torch::kFloat)), world)), 1e-5);
  });
}

TEST(ConvertSyncBatchNorm, LeavesOthersAlone) {
  on_ranks(2, [](Communicator& world) {
    nn::Sequential net(nn::Linear(3, 3), nn::InstanceNorm1d(nn::InstanceNorm1dOptions(3).track_running_stats(true)),
                       SyncBatchNorm(3, world));
    EXPECT_EQ(convert_sync_batch_norm(net, world), 0);
    nn::BatchNorm1d converted(3), plain(3);
    EXPECT_EQ(convert_sync_batch_norm(converted, world), 1);
    auto clone = std::dynamic_pointer_cast<nn::BatchNorm1dImpl>(converted->clone());
    // Neither a batch norm that was never converted nor a clone waits for anyone.
    if (world.rank() == 0) {
      EXPECT_TRUE(plain(torch::eye(3)).equal(clone->forward(torch::eye(3))));
    }
  });
}

// Of the same width, so that nothing else would tell them apart.
TEST(ConvertSyncBatchNorm, NamesThoseThatRanksTakeForEachOther) {
  const auto forward = outcomes(3, [](Communicator& world) {
    nn::Sequential left(nn::Linear(3, 3), nn::BatchNorm1d(3)), right(nn::Linear(3, 3), nn::BatchNorm1d(3));
    nn::ModuleList net(left, right);
    convert_sync_batch_norm(net, world);
    (world.rank() == 1 ? right : left)->forward(torch::eye(3));
  });
  expect_all_say(forward, {"UsageError: ", "rank 0 is in the forward of torch::nn::BatchNorm1dImpl '0.1'",
                           "rank 1 in that of torch::nn::BatchNorm1dImpl '1.1'"});

  const auto backward = outcomes(3, [](Communicator& world) {
    nn::BatchNorm1d left(3), right(3);
    nn::ModuleList net(left, right);
    convert_sync_batch_norm(net, world);
    const Tensor x = torch::eye(3).requires_grad_();
    const Tensor a = left(x), b = right(x);
    (world.rank() == 2 ? b : a).square().sum().backward();
  });
  expect_all_say(backward, {"UsageError: ", "rank 1 is in the backward of torch::nn::BatchNorm1dImpl '0'",
                            "rank 2 in that of torch::nn::BatchNorm1dImpl '1'"});
}

struct OwnNormImpl : nn::Cloneable<OwnNormImpl> {
  explicit OwnNormImpl(int features) {
    register_buffer("running_mean", torch::zeros(features));
    register_buffer("running_var", torch::ones(features));
  }
  void reset() override {}
};
TORCH_MODULE(OwnNorm);

TEST(ConvertSyncBatchNorm, NamesWhatItCanNotConvert) {
  const auto own = outcomes(3, [](Communicator& world) {
    nn::ModuleList net(nn::BatchNorm1d(3));
    if (world.rank() == 1) net->push_back(nn::ModuleList(OwnNorm(3)));
    convert_sync_batch_norm(net, world);
  });
  expect_all_say(own, {"OwnNormImpl '1.0' keeps running statistics, but is no torch::nn::BatchNorm1d"});
  expect_all_say({own[0], own[2]}, {"rank 1"});

  const auto loose = outcomes(1, [](Communicator& world) {
    nn::BatchNorm1dImpl norm(nn::BatchNormOptions(3).track_running_stats(false));
    convert_sync_batch_norm(norm, world);
  });
  expect_all_say(loose, {"is not in a holder"});
}

}  // namespace
}  // namespace trireme::test
