// The mean of the ranks' gradients is the gradient of the joined batch, however the ranks come to it.
#include "trireme/torch/data_parallel.h"

#include "torch/mlp.h"
#include "torch/ranks.h"
#include "trireme/torch/sync_batch_norm.h"

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <torch/torch.h>

namespace trireme::test {
namespace {

double tolerance(torch::Dtype dtype) { return dtype == torch::kFloat64 ? 1e-15 : 1e-6; }

struct Case {
  Way way;
  int ranks;
  torch::Dtype dtype;
  std::size_t bucket_bytes;
};

class Gradients : public ::testing::TestWithParam<Case> {
 protected:
  DistributedDataParallelOptions options() const {
    return {.first_bucket_bytes = GetParam().bucket_bytes, .bucket_bytes = GetParam().bucket_bytes};
  }
  void on_all(const std::function<void(Communicator&)>& work) const { on_ranks(GetParam().way, ranks(), work); }
  int ranks() const { return GetParam().ranks; }
  torch::Dtype dtype() const { return GetParam().dtype; }
};

TEST_P(Gradients, AreThoseOfTheJoinedBatch) {
  const Batch joined = make_batch(kRows * ranks(), dtype());
  const auto expected = reference(joined, dtype());
  on_all([&](Communicator& world) {
    Mlp net = make_mlp(dtype());
    DistributedDataParallel model(net, world, options());
    const Batch own = joined.rows(kRows * world.rank(), kRows * (world.rank() + 1));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(step == 1);
      loss_of(model(own.x), own).backward();
      EXPECT_LE(largest_difference(gradients_of(*net), expected), tolerance(dtype())) << "step " << step;
      expect_same_bits(world, gradients_of(*net), "step " + std::to_string(step));
    }
  });
}

TEST_P(Gradients, AddUpWithoutSync) {
  const Batch joined = make_batch(2 * kRows * ranks(), dtype());
  const auto expected = reference(joined, dtype());
  on_all([&](Communicator& world) {
    Mlp net = make_mlp(dtype());
    DistributedDataParallel model(net, world, options());
    const Batch own = joined.rows(2 * kRows * world.rank(), 2 * kRows * (world.rank() + 1));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(step == 2);
      {
        const auto alone = model.no_sync();
        const Batch half = own.rows(0, kRows);
        (loss_of(model(half.x), half) / 2).backward();
      }
      const Batch half = own.rows(kRows, 2 * kRows);
      (loss_of(model(half.x), half) / 2).backward();
      EXPECT_LE(largest_difference(gradients_of(*net), expected), tolerance(dtype()));
    }
  });
}

TEST_P(Gradients, OfUnevenSharesAreWeighted) {
  const int shares = ranks() * (ranks() + 1) / 2;
  const Batch joined = make_batch(shares, dtype());
  const auto expected = reference(joined, dtype());
  on_all([&](Communicator& world) {
    Mlp net = make_mlp(dtype());
    DistributedDataParallel model(net, world, options());
    const int begin = world.rank() * (world.rank() + 1) / 2;
    const Batch own = joined.rows(begin, begin + world.rank() + 1);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      model.weigh(loss_of(model(own.x), own), world.rank() + 1).backward();
      EXPECT_LE(largest_difference(gradients_of(*net), expected), tolerance(dtype()));
    }
  });
}

// What happens to the model's results on their way to the loss, and which of them, is the user's business.
TEST_P(Gradients, OfUnevenSharesAreWeightedOnceHoweverTheModelIsUsed) {
  using Models = std::vector<std::function<Tensor(const Tensor&)>>;
  const std::vector<std::function<Tensor(const Models&, const Tensor&)>> uses = {
      [](const Models& models, const Tensor& x) {
        Tensor out = models[0](x);
        return out.mul_(3);
      },
      [](const Models& models, const Tensor& x) {
        const Tensor again = torch::tanh(models[0](x)).matmul(torch::ones({3, 5}, x.options()));
        return models[0](again);
      },
      [](const Models& models, const Tensor& x) {
        const Tensor next = torch::tanh(models[0](x)).matmul(torch::ones({3, 5}, x.options()));
        return models[1](next);
      },
  };
  const Batch joined = make_batch(ranks() * (ranks() + 1) / 2, dtype());
  for (std::size_t use = 0; use < uses.size(); ++use) {
    Mlp first = make_mlp(dtype()), second = make_mlp(dtype(), 2);
    const Models plain = {[&](const Tensor& x) { return first(x); }, [&](const Tensor& x) { return second(x); }};
    loss_of(uses[use](plain, joined.x), joined).backward();
    on_all([&](Communicator& world) {
      Mlp own_first = make_mlp(dtype()), own_second = make_mlp(dtype(), 2);
      DistributedDataParallel one(own_first, world, options()), two(own_second, world, options());
      const Models models = {[&](const Tensor& x) { return one(x); }, [&](const Tensor& x) { return two(x); }};
      const int begin = world.rank() * (world.rank() + 1) / 2;
      const Batch own = joined.rows(begin, begin + world.rank() + 1);
      const Tensor loss = loss_of(uses[use](models, own.x), own);
      one.weigh(loss, world.rank() + 1).backward();
      // They are up to ten times as large as those of one pass.
      EXPECT_LE(largest_difference(gradients_of(*own_first), gradients_of(*first)), 10 * tolerance(dtype())) << use;
      if (!second->first->weight.grad().defined()) return;
      EXPECT_LE(largest_difference(gradients_of(*own_second), gradients_of(*second)), 10 * tolerance(dtype())) << use;
    });
  }
}

TEST_P(Gradients, OfSeveralForwardsBeforeBackward) {
  const Batch joined = make_batch(2 * kRows * ranks(), dtype());
  const auto expected = reference(joined, dtype());
  on_all([&](Communicator& world) {
    Mlp net = make_mlp(dtype());
    DistributedDataParallel model(net, world, options());
    const Batch own = joined.rows(2 * kRows * world.rank(), 2 * kRows * (world.rank() + 1));
    const Batch one = own.rows(0, kRows), two = own.rows(kRows, 2 * kRows);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      const Tensor first = model(one.x);
      const Tensor second = model(two.x);
      if (step == 0) {
        ((loss_of(first, one) + loss_of(second, two)) / 2).backward();
      } else {
        (loss_of(first, one) / 2).backward();
        (loss_of(second, two) / 2).backward();
      }
      EXPECT_LE(largest_difference(gradients_of(*net), expected), tolerance(dtype()));
    }
  });
}

TEST_P(Gradients, KeepTrainingWhatOneProcessWouldTrain) {
  const Batch joined = make_batch(kRows * ranks(), dtype());
  for (const bool adam : {false, true}) {
    const auto optimizer_of = [&](Mlp& net) -> std::unique_ptr<torch::optim::Optimizer> {
      if (adam) return std::make_unique<torch::optim::Adam>(net->parameters(), torch::optim::AdamOptions(1e-2));
      return std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    };
    constexpr int kSteps = 100;
    Mlp alone = make_mlp(dtype());
    const auto optimizer = optimizer_of(alone);
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      loss_of(alone(joined.x), joined).backward();
      optimizer->step();
    }
    on_all([&](Communicator& world) {
      Mlp net = make_mlp(dtype(), world.rank());  // rank 0's model is what counts
      if (world.rank() == 0) {
        const torch::NoGradGuard no_grad;
        const Mlp same = make_mlp(dtype());
        for (std::size_t i = 0; i < net->parameters().size(); ++i) net->parameters()[i].copy_(same->parameters()[i]);
      }
      DistributedDataParallel model(net, world, options());
      const auto own_optimizer = optimizer_of(net);
      const Batch own = joined.rows(kRows * world.rank(), kRows * (world.rank() + 1));
      for (int step = 0; step < kSteps; ++step) {
        own_optimizer->zero_grad();
        loss_of(model(own.x), own).backward();
        own_optimizer->step();
        expect_same_bits(world, net->parameters(), "step " + std::to_string(step));
      }
      // Adam divides by small numbers, so that a rounding grows.
      const double most = dtype() == torch::kFloat64 ? 1e-10 : (adam ? 1e-3 : 1e-5);
      EXPECT_LE(largest_difference(net->parameters(), alone->parameters()), most) << (adam ? "Adam" : "SGD");
    });
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{300}, std::size_t{25} << 20}) {
        all.push_back({Way::inproc, ranks, dtype, bytes});
      }
    }
  }
  for (const Way way : {Way::shm, Way::tcp, Way::two_hosts}) all.push_back({way, 4, torch::kFloat64, 300});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Gradients, ::testing::ValuesIn(cases()), [](const auto& test) {
  return to_string(test.param.way) + "_" + std::to_string(test.param.ranks) + "_ranks_" +
         (test.param.dtype == torch::kFloat32 ? "f32_" : "f64_") + std::to_string(test.param.bucket_bytes);
});

TEST(Weights, OfZeroDoNotCount) {
  const Batch batch = make_batch(kRows, torch::kFloat64);
  const auto expected = reference(batch, torch::kFloat64);
  on_ranks(3, [&](Communicator& world) {
    Mlp net = make_mlp(torch::kFloat64);
    DistributedDataParallel model(net, world);
    // Rank 0 has no samples at all, and rank 1 has some that are not to count.
    const Batch own = batch.rows(0, world.rank() == 0 ? 0 : kRows);
    const Tensor scale = torch::full({}, world.rank() == 1 ? 5.0 : 1.0, torch::kFloat64);
    model.weigh(loss_of(model(own.x) * scale, own), world.rank() == 2 ? kRows : 0).backward();
    EXPECT_LE(largest_difference(gradients_of(*net), expected), 1e-15);
  });
}

TEST(Weights, ThatCanNotBeAreNamed) {
  const auto say = [](const std::function<double(int)>& samples) {
    return outcomes(3, [&](Communicator& world) {
      Mlp net = make_mlp(torch::kFloat64);
      DistributedDataParallel model(net, world);
      const Batch batch = make_batch(kRows, torch::kFloat64);
      model.weigh(loss_of(model(batch.x), batch), samples(world.rank())).backward();
    });
  };
  expect_all_say(say([](int) { return 0.0; }), {"no rank has any samples"});
  const auto negative = say([](int rank) { return rank == 1 ? -1.0 : 1.0; });
  expect_all_say(negative, {"a rank can't have -1 samples"});
  expect_all_say({negative[0], negative[2]}, {"rank 1"});
}

// Rank 0's statistics come before each forward, and the forward before it still has its backward to do.
TEST(Buffers, MayComeBetweenForwardAndBackward) {
  const Batch one = make_batch(kRows, torch::kFloat64), two = make_batch(kRows, torch::kFloat64, 5);
  const auto make = [] {
    torch::nn::Sequential net(torch::nn::Linear(5, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3));
    net->to(torch::kFloat64);
    const torch::NoGradGuard no_grad;
    for (Tensor& each : net->parameters()) each.copy_(torch::sin(torch::arange(each.numel()).view_as(each)));
    return net;
  };
  const auto step = [&](auto& model) {
    const Tensor first = model.forward(one.x);
    const Tensor second = model.forward(two.x);
    ((loss_of(first, one) + loss_of(second, two)) / 2).backward();
  };
  torch::nn::Sequential alone = make();
  step(*alone);
  on_ranks(3, [&](Communicator& world) {
    torch::nn::Sequential net = make();
    DistributedDataParallel model(net, world);
    step(model);
    EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(*alone)), 1e-14);
    EXPECT_EQ(largest_difference(net->buffers(), alone->buffers()), 0);
  });
}

TEST(Buffers, ComeWhenTheyAreToldTo) {
  on_ranks(2, [](Communicator& world) {
    for (const auto policy : {BroadcastBuffers::before_forward, BroadcastBuffers::at_start, BroadcastBuffers::never}) {
      torch::nn::BatchNorm1d net(torch::nn::BatchNormOptions(1).momentum(1.0));
      net->running_mean.fill_(world.rank() + 5);
      DistributedDataParallel model(net, world, {.broadcast_buffers = policy});
      const double at_start = policy == BroadcastBuffers::never ? world.rank() + 5 : 5;
      EXPECT_EQ(net->running_mean.item<double>(), at_start);
      const Tensor x = torch::tensor({-1.0F, 1.0F}).view({2, 1}) + world.rank();
      for (int step = 0; step < 2; ++step) model(x);
      net->eval();
      model(x);  // it does not change them, and is no training: nothing comes either
      EXPECT_EQ(net->running_mean.item<double>(), world.rank());
      net->train();
      net->options.momentum(0.0);
      model(x);
      EXPECT_EQ(net->running_mean.item<double>(), policy == BroadcastBuffers::before_forward ? 0 : world.rank());
    }
  });
}

TEST(Buckets, AreBuiltInTheOrderOfGradients) {
  on_ranks(2, [](Communicator& world) {
    Mlp net = make_mlp(torch::kFloat32);
    DistributedDataParallel model(net, world, {.first_bucket_bytes = 1, .bucket_bytes = 300});
    const Batch batch = make_batch(kRows, torch::kFloat32);
    loss_of(model(batch.x), batch).backward();
    const auto buckets = model.buckets();
    ASSERT_GT(buckets.size(), 1U);
    EXPECT_EQ(buckets.front().names.front().substr(0, 5), "third");
    EXPECT_EQ(buckets.back().names.back().substr(0, 5), "first");
    // Gradients lie in their bucket, and stay there.
    const void* place = net->third->weight.grad().data_ptr();
    net->zero_grad(false);
    loss_of(model(batch.x), batch).backward();
    EXPECT_EQ(net->third->weight.grad().data_ptr(), place);
    EXPECT_EQ(model.times().buckets.size(), buckets.size());
  });
}

/// Used in another order than it is registered in.
struct TurnedImpl : torch::nn::Module {
  TurnedImpl() {
    for (const char* name : {"last", "first", "middle"}) layers.push_back(register_module(name, make_layer()));
  }
  static torch::nn::Linear make_layer() {
    return torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false));
  }
  Tensor forward(const Tensor& x) { return layers[0](torch::tanh(layers[2](torch::tanh(layers[1](x))))); }
  static constexpr int kWidth = 5;
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(Turned);

TEST(Buckets, AreBuiltAnewIfGradientsComeInAnotherOrderThanParameters) {
  on_ranks(2, [](Communicator& world) {
    Turned net;
    DistributedDataParallel model(net, world, {.first_bucket_bytes = 1, .bucket_bytes = 1});
    const auto names = [&] {
      std::vector<std::string> all;
      for (const GradientBucket& bucket : model.buckets())
        all.insert(all.end(), bucket.names.begin(), bucket.names.end());
      return all;
    };
    EXPECT_EQ(names(), (std::vector<std::string>{"middle.weight", "first.weight", "last.weight"}));
    for (int step = 0; step < 2; ++step) {
      model(torch::ones({1, TurnedImpl::kWidth})).sum().backward();
      EXPECT_EQ(names(), (std::vector<std::string>{"last.weight", "middle.weight", "first.weight"}));
    }
  });
}

TEST(Buckets, AreReducedWhileBackwardGoesOn) {
  on_ranks(2, [](Communicator& world) {
    Mlp net = make_mlp(torch::kFloat32);
    DistributedDataParallel model(net, world, {.first_bucket_bytes = 1, .bucket_bytes = 1});
    const Batch batch = make_batch(kRows, torch::kFloat32);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      loss_of(model(batch.x), batch).backward();
      const StepTimes& times = model.times();
      ASSERT_EQ(times.buckets.size(), 6U);
      EXPECT_LE(times.backward.begin, times.waiting.begin);
      EXPECT_LE(times.waiting.begin, times.waiting.end);
      for (const StepTimes::Bucket& bucket : times.buckets) {
        // The first backward only learns their order.
        EXPECT_EQ(bucket.reduction.begin<times.waiting.begin, step> 0);
        EXPECT_LE(bucket.reduction.begin, bucket.reduction.end);
      }
      for (std::size_t i = 1; i < times.buckets.size(); ++i) {
        EXPECT_LE(times.buckets[i - 1].reduction.begin, times.buckets[i].reduction.begin);
      }
    }
  });
}

// Everything that stops forward and backward until other ranks have answered is noted, in its order.
TEST(StepTimes, TellOfWhatNothingCanHide) {
  on_ranks(2, [](Communicator& world) {
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 1));
    convert_sync_batch_norm(*net, world);
    DistributedDataParallel model(net, world);
    for (int step = 0; step < 3; ++step) {
      model.forward(torch::randn({3, 4}));  // one that has no backward
      const torch::Tensor loss = model.forward(torch::randn({3 + world.rank(), 4})).mean();
      model.weigh(loss, 3 + world.rank()).backward();
      const StepTimes& times = model.times();
      ASSERT_EQ(times.exchanges.size(), 4U) << "buffers, statistics, weights, sums";
      StepTimes::Clock::time_point last = times.forward.begin;
      for (const auto& [begin, end] : times.exchanges) {
        EXPECT_LE(last, begin);
        EXPECT_LE(begin, end);
        last = end;
      }
      EXPECT_LE(times.exchanges[1].end, times.forward.end);
      EXPECT_LE(times.forward.end, times.exchanges[2].begin);
      EXPECT_LE(last, times.waiting.begin);
    }
  });
}

// A batch norm goes on without the model that it was wrapped in, and with the next one.
TEST(StepTimes, AreOfTheModelThatLives) {
  on_ranks(2, [](Communicator& world) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(4));
    convert_sync_batch_norm(*net, world);
    { const DistributedDataParallel gone(net, world); }
    net->forward(torch::randn({3, 4})).sum().backward();
    DistributedDataParallel model(net, world, {.broadcast_buffers = BroadcastBuffers::never});
    model.forward(torch::randn({3, 4})).sum().backward();
    EXPECT_EQ(model.times().exchanges.size(), 2U);
  });
}

/// What allreduce does, made of two halves.
class Halves final : public CommunicationHook {
 public:
  void start(GradientBucket& bucket, Communicator& ranks) override {
    EXPECT_EQ(bucket.index, static_cast<int>(handles_.size()));
    handles_.push_back(ranks.allreduce_async(
        Buffer(bucket.gradients.data_ptr(), static_cast<std::size_t>(bucket.gradients.numel()), Dtype::f64)));
  }
  void finish(GradientBucket& bucket, Communicator& ranks) override {
    handles_[bucket.index].wait();
    bucket.gradients.div_(ranks.ranks());
    ranks.barrier();
    if (bucket.index + 1 == static_cast<int>(handles_.size())) handles_.clear();
  }

 private:
  std::vector<Handle> handles_;
};

TEST(Hook, ReducesInsteadOfAllreduce) {
  for (const auto& [way, weighs] : {std::pair{Way::inproc, false}, {Way::inproc, true}, {Way::two_hosts, true}}) {
    const Batch joined = make_batch(3 * kRows, torch::kFloat64);
    const auto expected = reference(joined, torch::kFloat64);
    on_ranks(way, 3, [&, weighs = weighs](Communicator& world) {
      Mlp net = make_mlp(torch::kFloat64);
      DistributedDataParallel model(net, world,
                                    {.first_bucket_bytes = 1, .bucket_bytes = 300, .hook = std::make_shared<Halves>()});
      const Batch own = joined.rows(kRows * world.rank(), kRows * (world.rank() + 1));
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        const Tensor loss = loss_of(model(own.x), own);
        (weighs ? model.weigh(loss, kRows) : loss).backward();
        EXPECT_LE(largest_difference(gradients_of(*net), expected), 1e-15);
      }
    });
  }
}

/// Throws on rank 1, in the second step.
class Throwing final : public CommunicationHook {
 public:
  explicit Throwing(bool at_start) : at_start_(at_start) {}
  void start(GradientBucket& /*bucket*/, Communicator& ranks) override {
    if (at_start_) maybe_throw(ranks);
  }
  void finish(GradientBucket& bucket, Communicator& ranks) override {
    if (!at_start_) maybe_throw(ranks);
    ranks.allreduce(std::span(bucket.gradients.data_ptr<double>(), bucket.gradients.numel()), Op::average);
  }

 private:
  void maybe_throw(const Communicator& ranks) {
    if (ranks.rank() == 1 && ++calls_ == 2) throw std::runtime_error("out of codes");
  }
  bool at_start_;
  int calls_ = 0;
};

TEST(Hook, ThatThrowsOnOneRankIsHeardOfOnAll) {
  for (const bool at_start : {false, true}) {
    const auto said = outcomes(3, [&](Communicator& world) {
      Mlp net = make_mlp(torch::kFloat64);
      DistributedDataParallel model(net, world, {.hook = std::make_shared<Throwing>(at_start)});
      const Batch batch = make_batch(kRows, torch::kFloat64);
      for (int step = 0; step < 3; ++step) loss_of(model(batch.x), batch).backward();
    });
    EXPECT_EQ(said[1], "exception: out of codes");
    expect_all_say({said[0], said[2]}, {"rank 1", "communication hook", "out of codes"});
  }
}

}  // namespace
}  // namespace trireme::test
