// A hundred steps on P ranks end where one process with the joined batches ends, and all ranks have the same bits after
// each. With batch norm over all ranks; without it, data_parallel_test.cpp has the same.
#include "torch/mlp.h"
#include "torch/ranks.h"
#include "trireme/torch/data_parallel.h"
#include "trireme/torch/sync_batch_norm.h"

#include <memory>
#include <torch/torch.h>

namespace trireme::test {
namespace {

constexpr int kSteps = 100;

struct Case {
  int ranks;
  bool adam;
  int passes;   ///< forward and backward that one step adds up
  bool uneven;  ///< ranks have different shares, and weigh them
};

/// Without a bias before batch norm, which takes it out again: its gradient is nothing but rounding, which Adam would
/// enlarge.
torch::nn::Sequential make_normed() {
  torch::nn::Sequential net(torch::nn::Linear(torch::nn::LinearOptions(5, 7).bias(false)), torch::nn::BatchNorm1d(7),
                            torch::nn::Tanh(), torch::nn::Linear(7, 3));
  net->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  for (Tensor& each : net->parameters()) each.copy_(torch::sin(torch::arange(each.numel()) + 1).view_as(each));
  return net;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const torch::nn::Sequential& net, bool adam) {
  if (adam) return std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-2));
  return std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

std::vector<Tensor> state_of(torch::nn::Module& net) {
  std::vector<Tensor> all = net.parameters();
  for (const Tensor& buffer : net.buffers()) all.push_back(buffer);
  return all;
}

class Training : public ::testing::TestWithParam<Case> {
 protected:
  static std::int64_t rows_of(int rank) { return GetParam().uneven ? kRows + rank : kRows; }
  static std::int64_t rows_before(int rank) { return rank == 0 ? 0 : rows_before(rank - 1) + rows_of(rank - 1); }
  static Batch joined(int step, int pass) {
    return make_batch(rows_before(GetParam().ranks), torch::kFloat64, step * GetParam().passes + pass);
  }
};

TEST_P(Training, WithBatchNormIsThatOfOneProcess) {
  const Case c = GetParam();
  torch::nn::Sequential alone = make_normed();
  const auto optimizer = make_optimizer(alone, c.adam);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    for (int pass = 0; pass < c.passes; ++pass) {
      const Batch batch = joined(step, pass);
      (loss_of(alone->forward(batch.x), batch) / c.passes).backward();
    }
    optimizer->step();
  }
  on_ranks(c.ranks, [&](Communicator& world) {
    torch::nn::Sequential net = make_normed();
    convert_sync_batch_norm(net, world);
    DistributedDataParallel model(net, world, {.first_bucket_bytes = 1, .bucket_bytes = 300});
    const auto own_optimizer = make_optimizer(net, c.adam);
    const std::int64_t begin = rows_before(world.rank()), end = begin + rows_of(world.rank());
    const auto pass = [&](const Batch& batch) {
      const Tensor loss = loss_of(model(batch.x), batch) / c.passes;
      (c.uneven ? model.weigh(loss, static_cast<double>(end - begin)) : loss).backward();
    };
    for (int step = 0; step < kSteps; ++step) {
      own_optimizer->zero_grad();
      for (int i = 0; i + 1 < c.passes; ++i) {
        const auto apart = model.no_sync();
        pass(joined(step, i).rows(begin, end));
      }
      pass(joined(step, c.passes - 1).rows(begin, end));
      own_optimizer->step();
      expect_same_bits(world, state_of(*net), "step " + std::to_string(step));
    }
    EXPECT_LE(largest_difference(state_of(*net), state_of(*alone)), 1e-10) << "rank " << world.rank();
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const bool adam : {false, true}) {
      for (const int passes : {1, 2}) {
        for (const bool uneven : {false, true}) all.push_back({ranks, adam, passes, uneven});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Training, ::testing::ValuesIn(cases()), [](const auto& test) {
  return std::to_string(test.param.ranks) + "_ranks_" + (test.param.adam ? "Adam" : "SGD") +
         (test.param.passes > 1 ? "_accumulated" : "") + (test.param.uneven ? "_uneven" : "");
});

}  // namespace
}  // namespace trireme::test
