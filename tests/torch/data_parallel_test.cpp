// The mean of the ranks' gradients is the gradient of the joined batch, however the ranks come to it.
#include "trireme/torch/data_parallel.h"

#include "torch/ranks.h"

#include <mutex>
#include <torch/torch.h>

namespace trireme::test {
namespace {

using torch::Tensor;

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int width = 7) : first(5, width), second(width, width), third(width, 3) {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
  }
  Tensor forward(const Tensor& x) { return third(torch::tanh(second(torch::tanh(first(x))))); }

  torch::nn::Linear first, second, third;
};
TORCH_MODULE(Mlp);

/// The same for all who ask with the same seed: the default generator is shared by all threads.
Mlp make_mlp(torch::Dtype dtype, int seed = 1) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  Mlp net;
  net->to(dtype);
  return net;
}

struct Batch {
  Tensor x, y;
  Batch rows(std::int64_t begin, std::int64_t end) const { return {x.slice(0, begin, end), y.slice(0, begin, end)}; }
};

Batch make_batch(std::int64_t rows, torch::Dtype dtype, int seed = 3) {
  const auto options = torch::dtype(dtype);
  const auto numbers = [&](std::int64_t columns, double scale) {
    return torch::sin(torch::arange(rows * columns, options) * scale + seed).view({rows, columns});
  };
  return {numbers(5, 0.7), numbers(3, 1.3)};
}

Tensor loss_of(const Tensor& out, const Batch& batch) { return torch::mse_loss(out, batch.y); }

std::vector<Tensor> gradients_of(torch::nn::Module& net) {
  std::vector<Tensor> result;
  for (const Tensor& parameter : net.parameters()) result.push_back(parameter.grad().clone());
  return result;
}

/// The gradient of the joined batch, on one process.
std::vector<Tensor> reference(const Batch& batch, torch::Dtype dtype) {
  Mlp net = make_mlp(dtype);
  loss_of(net(batch.x), batch).backward();
  return gradients_of(*net);
}

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].numel() > 0) largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

double tolerance(torch::Dtype dtype) { return dtype == torch::kFloat64 ? 1e-15 : 1e-6; }

/// Fails if any bit differs between ranks.
void expect_same_bits(Communicator& world, const std::vector<Tensor>& tensors, const std::string& when) {
  for (const Tensor& tensor : tensors) {
    const Tensor whole = tensor.detach().contiguous();
    const auto bytes = static_cast<std::size_t>(whole.numel() * whole.element_size());
    std::vector<std::uint8_t> first(bytes);
    std::memcpy(first.data(), whole.data_ptr(), bytes);
    const std::vector<std::uint8_t> own = first;
    world.broadcast(first, 0);
    EXPECT_EQ(own, first) << when << ", rank " << world.rank();
  }
}

struct Case {
  int ranks;
  torch::Dtype dtype;
  std::size_t bucket_bytes;
};

class Gradients : public ::testing::TestWithParam<Case> {
 protected:
  DistributedDataParallelOptions options() const {
    return {.first_bucket_bytes = GetParam().bucket_bytes, .bucket_bytes = GetParam().bucket_bytes};
  }
  int ranks() const { return GetParam().ranks; }
  torch::Dtype dtype() const { return GetParam().dtype; }
};

constexpr std::int64_t kRows = 4;  // a rank

TEST_P(Gradients, AreThoseOfTheJoinedBatch) {
  const Batch joined = make_batch(kRows * ranks(), dtype());
  const auto expected = reference(joined, dtype());
  on_ranks(ranks(), [&](Communicator& world) {
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
  on_ranks(ranks(), [&](Communicator& world) {
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
  on_ranks(ranks(), [&](Communicator& world) {
    Mlp net = make_mlp(dtype());
    DistributedDataParallel model(net, world, options());
    const int begin = world.rank() * (world.rank() + 1) / 2;
    const Batch own = joined.rows(begin, begin + world.rank() + 1);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      model.weigh(world.rank() + 1);
      loss_of(model(own.x), own).backward();
      EXPECT_LE(largest_difference(gradients_of(*net), expected), tolerance(dtype()));
    }
  });
}

TEST_P(Gradients, OfSeveralForwardsBeforeBackward) {
  const Batch joined = make_batch(2 * kRows * ranks(), dtype());
  const auto expected = reference(joined, dtype());
  on_ranks(ranks(), [&](Communicator& world) {
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
    on_ranks(ranks(), [&](Communicator& world) {
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
        all.push_back({ranks, dtype, bytes});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Gradients, ::testing::ValuesIn(cases()), [](const auto& test) {
  return std::to_string(test.param.ranks) + "_ranks_" + (test.param.dtype == torch::kFloat32 ? "f32_" : "f64_") +
         std::to_string(test.param.bucket_bytes);
});

/// Uses one branch or the other, or both.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() : left(2, 1), right(2, 1), idle(2, 1) {
    register_module("left", left);
    register_module("right", right);
    register_module("idle", idle);
    const torch::NoGradGuard no_grad;
    for (Tensor& each : parameters()) each.fill_(0.5);
  }
  std::pair<Tensor, int> forward(const Tensor& x, bool goes_left) { return {goes_left ? left(x) : right(x), 1}; }
  torch::nn::Linear left, right, idle;
};
TORCH_MODULE(Branches);

TEST(Unused, ParametersAreNamedOnAllRanks) {
  for (const int ranks : {1, 3}) {
    const auto said = outcomes(ranks, [](Communicator& world) {
      Branches net;
      DistributedDataParallel model(net, world);
      model(torch::ones({1, 2}), true).first.sum().backward();
    });
    for (const std::string& each : said) {
      EXPECT_NE(each.find("right.weight"), std::string::npos) << each;
      EXPECT_NE(each.find("find_unused_parameters"), std::string::npos) << each;
    }
  }
}

TEST(Unused, AreFoundAndCountAsZero) {
  on_ranks(3, [](Communicator& world) {
    Branches net;
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      net->zero_grad(step == 2);
      // All go left but one, another one in each step.
      const bool left = world.rank() != step % 3;
      model(torch::full({1, 2}, world.rank() + 1.0), left).first.sum().backward();
      const double all = 1 + 2 + 3;
      const double right = step % 3 + 1;
      EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), (all - right) / 3) << step;
      EXPECT_FLOAT_EQ(net->right->weight.grad()[0][1].item<float>(), right / 3) << step;
      EXPECT_FALSE(net->idle->weight.grad().defined());
    }
  });
}

TEST(Unused, AreKnownAfterTheFirstBackwardOfAStaticGraph) {
  on_ranks(3, [](Communicator& world) {
    Branches net;
    DistributedDataParallel model(net, world, {.static_graph = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(torch::full({1, 2}, world.rank() + 1.0), world.rank() != 1).first.sum().backward();
      EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), 4.0F / 3);
      EXPECT_FLOAT_EQ(net->right->weight.grad()[0][0].item<float>(), 2.0F / 3);
      EXPECT_FALSE(net->idle->weight.grad().defined());
    }
  });
}

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    wide = register_parameter("wide", torch::full({3}, 2.0, torch::kFloat64));
    narrow = register_parameter("narrow", torch::full({2, 2}, 3.0, torch::kFloat32));
    half = register_parameter("half", torch::full({5}, 1.0, torch::kBFloat16));
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true)));
    turned = register_parameter("turned", torch::ones({2, 3}).t());
    frozen = register_parameter("frozen", torch::ones({2}), false);
    seen = register_buffer("seen", torch::zeros({1}, torch::kInt64));
  }
  std::tuple<Tensor, std::vector<Tensor>> forward(const Tensor& rows, double factor) {
    const Tensor sum =
        (wide.sum() + narrow.sum().to(torch::kFloat64) + half.to(torch::kFloat64).sum() + turned.sum()) * factor;
    return {sum, {table(rows)}};
  }
  Tensor wide, narrow, half, turned, frozen, seen;
  torch::nn::Embedding table = nullptr;
};
TORCH_MODULE(Mixed);

TEST(Kinds, OfParametersAreAllReduced) {
  on_ranks(3, [](Communicator& world) {
    Mixed net;
    net->seen.fill_(world.rank() + 5);
    DistributedDataParallel model(net, world);
    EXPECT_EQ(net->seen.item<std::int64_t>(), 5);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(true);
      net->seen.fill_(world.rank() * 10 + step);
      // Every rank looks up row 0, and another one besides.
      const auto [sum, tables] = model(torch::tensor({0, world.rank() + 1}), world.rank() + 1.0);
      EXPECT_EQ(net->seen.item<std::int64_t>(), step);
      (sum + tables[0].sum().to(torch::kFloat64) * (world.rank() + 1)).backward();
      EXPECT_TRUE(torch::equal(net->wide.grad(), torch::full({3}, 2.0, torch::kFloat64)));
      EXPECT_TRUE(torch::equal(net->narrow.grad(), torch::full({2, 2}, 2.0F)));
      EXPECT_TRUE(torch::equal(net->half.grad(), torch::full({5}, 2.0, torch::kBFloat16)));
      EXPECT_TRUE(torch::equal(net->turned.grad(), torch::full({3, 2}, 2.0F)));
      EXPECT_EQ(net->turned.grad().strides(), net->turned.strides());
      EXPECT_FALSE(net->frozen.grad().defined());
      const Tensor table = net->table->weight.grad();
      ASSERT_TRUE(table.is_sparse());
      EXPECT_TRUE(
          torch::allclose(table.to_dense().select(1, 0), torch::tensor({6.0F, 1.0F, 2.0F, 3.0F, 0.0F, 0.0F}) / 3));
    }
  });
}

/// One parameter under two names, and one result that is computed from another.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("weight", torch::sin(torch::arange(9, torch::kFloat64)).view({3, 3}));
    again = register_parameter("again", weight);
  }
  std::pair<Tensor, Tensor> forward(const Tensor& x) {
    const Tensor features = torch::tanh(x.mm(weight));
    return {features, features.mm(again)};
  }
  Tensor weight, again;
};
TORCH_MODULE(Tied);

TEST(Kinds, SharedParametersAndResultsOfResults) {
  const auto loss = [](const std::pair<Tensor, Tensor>& out) {
    return out.first.pow(2).mean() + out.second.pow(2).mean();
  };
  const Tensor x = torch::sin(torch::arange(18, torch::kFloat64)).view({6, 3});
  Tied alone;
  loss(alone(x)).backward();
  on_ranks(3, [&](Communicator& world) {
    for (const bool finds : {false, true}) {
      Tied net;
      DistributedDataParallel model(net, world,
                                    {.first_bucket_bytes = 1, .bucket_bytes = 1, .find_unused_parameters = finds});
      const int begin = world.rank() * (world.rank() + 1) / 2;
      const Tensor own = x.slice(0, begin, begin + world.rank() + 1);
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        model.weigh(world.rank() + 1);
        loss(model(own)).backward();
        EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(*alone)), 1e-15);
      }
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
  for (const bool weighs : {false, true}) {
    const Batch joined = make_batch(3 * kRows, torch::kFloat64);
    const auto expected = reference(joined, torch::kFloat64);
    on_ranks(3, [&](Communicator& world) {
      Mlp net = make_mlp(torch::kFloat64);
      DistributedDataParallel model(net, world,
                                    {.first_bucket_bytes = 1, .bucket_bytes = 300, .hook = std::make_shared<Halves>()});
      const Batch own = joined.rows(kRows * world.rank(), kRows * (world.rank() + 1));
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        if (weighs) model.weigh(kRows);
        loss_of(model(own.x), own).backward();
        EXPECT_LE(largest_difference(gradients_of(*net), expected), 1e-15);
      }
    });
  }
}

TEST(Modules, OfAllKindsCanBeWrapped) {
  on_ranks(2, [](Communicator& world) {
    MlpImpl plain;
    DistributedDataParallel by_reference(plain, world);
    EXPECT_EQ(&by_reference.module(), &plain);
    by_reference(torch::ones({1, 5})).sum().backward();

    torch::nn::Sequential sequence(torch::nn::Linear(5, 2), torch::nn::Tanh());
    DistributedDataParallel in_sequence(sequence, world);
    in_sequence.forward(torch::ones({1, 5})).sum().backward();

    DistributedDataParallel shared(std::make_shared<MlpImpl>(), world);
    shared(torch::ones({1, 5})).sum().backward();
    EXPECT_EQ(shared->parameters().size(), 6U);
  });
}

TEST(Modules, AreSavedAsIfNeverWrapped) {
  on_ranks(2, [](Communicator& world) {
    Mlp net = make_mlp(torch::kFloat32);
    DistributedDataParallel model(net, world);
    model(torch::ones({1, 5})).sum().backward();
    std::stringstream saved;
    torch::save(net, saved);
    Mlp loaded = make_mlp(torch::kFloat32, 7);
    torch::load(loaded, saved);
    EXPECT_EQ(largest_difference(net->parameters(), loaded->parameters()), 0);
  });
}

void expect_all_say(const std::vector<std::string>& said, const std::vector<std::string>& parts) {
  for (const std::string& each : said) {
    for (const std::string& part : parts) EXPECT_NE(each.find(part), std::string::npos) << each;
  }
}

TEST(Wrong, ModuleWithoutParameters) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            torch::nn::Sequential net{torch::nn::Tanh()};
                            const DistributedDataParallel model(net, world);
                          }),
                 {"no parameter"});
}

TEST(Wrong, Device) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Mlp net;
                            if (world.rank() == 1) net->register_parameter("far", torch::empty({7}, torch::kMeta));
                            const DistributedDataParallel model(net, world);
                          }),
                 {"far is on device meta"});
}

TEST(Wrong, ModelsThatDiffer) {
  expect_all_say(
      outcomes(3,
               [](Communicator& world) {
                 Mlp net(world.rank() == 2 ? 8 : 7);
                 const DistributedDataParallel model(net, world);
               }),
      {"rank 0 has parameter first.weight of Float [7, 5]", "rank 2 has parameter first.weight of Float [8, 5]"});
}

TEST(Wrong, ParameterAddedAfterWrapping) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Mlp net;
                            DistributedDataParallel model(net, world);
                            net->register_parameter("late", torch::ones({2}));
                            model(torch::ones({1, 5}));
                          }),
                 {"parameter late", "after it was wrapped"});
}

TEST(Wrong, BackwardWithoutForward) {
  const auto said = outcomes(3, [](Communicator& world) {
    Mlp net;
    DistributedDataParallel model(net, world);
    (world.rank() == 1 ? net(torch::ones({1, 5})) : model(torch::ones({1, 5}))).sum().backward();
  });
  expect_all_say(said, {"backward without forward"});
  EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
}

TEST(Wrong, SparseGradientThatNobodySpokeOf) {
  struct TableImpl : torch::nn::Module {
    TableImpl() { rows = register_parameter("rows", torch::ones({4, 2})); }
    Tensor forward(const Tensor& which) { return torch::embedding(rows, which, -1, false, true); }
    Tensor rows;
  };
  const auto lookup = [](Communicator& world, const std::vector<std::string>& names) {
    auto net = std::make_shared<TableImpl>();
    DistributedDataParallel model(net, world, {.sparse_parameters = names});
    model(torch::tensor({1, 2})).sum().backward();
    EXPECT_TRUE(net->rows.grad().is_sparse());
  };
  expect_all_say(outcomes(2, [&](Communicator& world) { lookup(world, {}); }), {"rows", "sparse_parameters"});
  expect_all_say(outcomes(2, [&](Communicator& world) { lookup(world, {"columns"}); }), {"columns"});
  on_ranks(2, [&](Communicator& world) { lookup(world, {"rows"}); });
}

}  // namespace
}  // namespace trireme::test
