// The gradient of the joined batch once more, of models whose buckets are large enough for the algorithms that move many
// bytes, with batch norm over all ranks and without.
#include "torch/mlp.h"
#include "torch/ranks.h"
#include "trireme/torch/data_parallel.h"
#include "trireme/torch/sync_batch_norm.h"

#include <cmath>
#include <mutex>
#include <span>
#include <torch/torch.h>

namespace trireme::test {
namespace {

struct NormedImpl : torch::nn::Module {
  NormedImpl(int width, bool normed) : first(5, width), second(width, width), third(width, 3), norm(width) {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
    if (normed) register_module("norm", norm);
    norms = normed;
  }
  Tensor forward(const Tensor& x) {
    const Tensor hidden = first(x);
    return third(torch::tanh(second(torch::tanh(norms ? norm(hidden) : hidden))));
  }

  torch::nn::Linear first, second, third;
  torch::nn::BatchNorm1d norm;
  bool norms = false;
};
TORCH_MODULE(Normed);

struct Case {
  Way way;
  int ranks;
  torch::Dtype dtype;
  int width;
  bool normed;
};

class Wide : public ::testing::TestWithParam<Case> {
 protected:
  static Normed make_net() {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    torch::manual_seed(5);
    Normed net(GetParam().width, GetParam().normed);
    net->to(GetParam().dtype);
    return net;
  }

  /// As one process computes them, from shares of the joined batch one after the other.
  static std::vector<Tensor> reference(const std::vector<Batch>& shares) {
    Normed net = make_net();
    for (const Batch& share : shares) {
      (loss_of(net(share.x), share) / static_cast<double>(shares.size())).backward();
    }
    return gradients_of(*net);
  }

  /// Of the largest gradient, which grows with the width.
  static void expect_near(Communicator& world, const std::vector<Tensor>& gradients,
                          const std::vector<Tensor>& expected) {
    double largest = 1;
    for (const Tensor& each : expected) largest = std::max(largest, each.abs().max().item<double>());
    const double rounding = GetParam().dtype == torch::kFloat64 ? 1e-13 : 1e-4;
    EXPECT_LE(largest_difference(gradients, expected), rounding * largest) << "rank " << world.rank();
    expect_same_bits(world, gradients, "gradients");
  }

  template <typename Work>
  static void on_all(Work work) {
    on_ranks(GetParam().way, GetParam().ranks, [&](Communicator& world) {
      Normed net = make_net();
      if (GetParam().normed) convert_sync_batch_norm(net, world);
      DistributedDataParallel model(net, world);
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        work(world, *net, model);
      }
    });
  }
};

TEST_P(Wide, GradientsAreThoseOfTheJoinedBatch) {
  const Batch joined = make_batch(kRows * GetParam().ranks, GetParam().dtype);
  const auto expected = reference({joined});
  on_all([&](Communicator& world, torch::nn::Module& net, auto& model) {
    const Batch own = joined.rows(kRows * world.rank(), kRows * (world.rank() + 1));
    loss_of(model(own.x), own).backward();
    expect_near(world, gradients_of(net), expected);
  });
}

TEST_P(Wide, GradientsOfUnevenSharesAreWeighted) {
  const int ranks = GetParam().ranks;
  const Batch joined = make_batch(ranks * (ranks + 3) / 2, GetParam().dtype);
  const auto expected = reference({joined});
  on_all([&](Communicator& world, torch::nn::Module& net, auto& model) {
    const int begin = world.rank() * (world.rank() + 3) / 2;
    const Batch own = joined.rows(begin, begin + world.rank() + 2);
    model.weigh(loss_of(model(own.x), own), world.rank() + 2).backward();
    expect_near(world, gradients_of(net), expected);
  });
}

TEST_P(Wide, GradientsAddUpWithoutSync) {
  const int half = static_cast<int>(kRows) * GetParam().ranks;
  const Batch joined = make_batch(2 * half, GetParam().dtype);
  const auto expected = reference({joined.rows(0, half), joined.rows(half, 2 * half)});
  on_all([&](Communicator& world, torch::nn::Module& net, auto& model) {
    for (int i = 0; i < 2; ++i) {
      const std::int64_t begin = i * half + kRows * world.rank();
      const Batch own = joined.rows(begin, begin + kRows);
      const auto step = [&] { (loss_of(model(own.x), own) / 2).backward(); };
      if (i == 0) {
        const auto alone = model.no_sync();
        step();
      } else {
        step();
      }
    }
    expect_near(world, gradients_of(net), expected);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  constexpr int kKibibytes = 64;  // width; 16 KiB of float32 for the second layer alone
  constexpr int kMebibytes = 600;
  for (const bool normed : {false, true}) {
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
      for (const int ranks : {1, 2, 3, 4, 8}) all.push_back({Way::inproc, ranks, dtype, kKibibytes, normed});
      for (const Way way : {Way::shm, Way::tcp, Way::two_hosts}) all.push_back({way, 3, dtype, kMebibytes, normed});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Wide, ::testing::ValuesIn(cases()), [](const auto& test) {
  const Case& c = test.param;
  return to_string(c.way) + "_" + std::to_string(c.ranks) + "_ranks_" + (c.dtype == torch::kFloat32 ? "f32_" : "f64_") +
         std::to_string(c.width) + (c.normed ? "_normed" : "");
});

TEST(Sequential, MayReturnWhatItIsAskedFor) {
  const auto make = [] {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    torch::manual_seed(6);
    torch::nn::Sequential net(torch::nn::Linear(5, 4), torch::nn::LSTM(4, 3));
    net->to(torch::kFloat64);
    return net;
  };
  using Output = std::tuple<Tensor, std::tuple<Tensor, Tensor>>;
  const auto loss = [](const Output& output) {
    return std::get<0>(output).square().mean() + std::get<0>(std::get<1>(output)).mean();
  };
  // Samples are the second dimension; each rank has one of them.
  const Tensor joined = make_batch(4 * 3, torch::kFloat64).x.view({4, 3, 5});
  torch::nn::Sequential alone = make();
  loss(alone->forward<Output>(joined)).backward();
  on_ranks(3, [&](Communicator& world) {
    torch::nn::Sequential net = make();
    DistributedDataParallel model(net, world);
    loss(model.forward_as<Output>(joined.slice(1, world.rank(), world.rank() + 1))).backward();
    EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(*alone)), 1e-14);
  });
}

}  // namespace
}  // namespace trireme::test
