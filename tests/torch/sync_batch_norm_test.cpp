// Batch norm on ranks, against LibTorch's on the joined batch.
#include "trireme/torch/sync_batch_norm.h"

#include "support/throws.h"
#include "torch/notices.h"
#include "torch/ranks.h"
#include "torch/sync_norm.h"

#include <gtest/gtest.h>

#include <sstream>
#include <torch/torch.h>
#include <utility>
#include <vector>

namespace trireme::test {
namespace {

using torch::Tensor;

constexpr std::int64_t kFeatures = 3;

// Samples of each rank: all different, and with `empty` one has none.
std::vector<std::int64_t> shares(int ranks, bool empty) {
  std::vector<std::int64_t> samples;
  for (int rank = 0; rank < ranks; ++rank) samples.push_back(empty && rank == ranks / 2 ? 0 : 4 + 3 * rank);
  return samples;
}

Tensor part(const Tensor& whole, const std::vector<std::int64_t>& samples, int rank) {
  std::int64_t first = 0;
  for (int before = 0; before < rank; ++before) first += samples[before];
  return whole.narrow(0, first, samples[rank]);
}

double difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  EXPECT_EQ(a.scalar_type(), b.scalar_type());
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

// A batch with its loss: values far from zero, of other size and mean in each channel.
struct Batch {
  Tensor values, factors, weight, bias;
};

Batch batch_of(std::int64_t samples, int spatial, torch::Dtype dtype) {
  torch::manual_seed(7);
  std::vector<std::int64_t> shape = {samples, kFeatures};
  for (int dim = 0; dim < spatial; ++dim) shape.push_back(2 + dim);
  std::vector<std::int64_t> channels(shape.size(), 1);
  channels[1] = kFeatures;
  const Tensor scale = torch::tensor({0.1, 1.0, 20.0}, torch::kDouble).view(channels);
  const Tensor shift = torch::tensor({5.0, 0.0, -30.0}, torch::kDouble).view(channels);
  return {(torch::randn(shape, torch::kDouble) * scale + shift).to(dtype),
          torch::randn(shape, torch::kDouble).to(dtype), torch::tensor({0.5, -1.5, 2.0}, torch::kDouble).to(dtype),
          torch::tensor({1.0, 0.0, -0.3}, torch::kDouble).to(dtype)};
}

// What one step gives.
struct Step {
  Tensor output, dx, dweight, dbias, running_mean, running_var;
};

template <typename Norm>
Step step(Norm& norm, const Tensor& input, const Tensor& factors) {
  const Tensor x = input.clone().requires_grad_();
  const Tensor y = norm(x);
  (y * factors).sum().backward();
  return {y.detach(), x.grad(), norm->weight.grad(), norm->bias.grad(), norm->running_mean, norm->running_var};
}

template <typename Norm>
void fill(Norm& norm, const Batch& batch) {
  const torch::NoGradGuard guard;
  // LibTorch's to() makes a float of num_batches_tracked too, which a module that has a long then misreads.
  if (batch.values.scalar_type() != torch::kFloat) norm->to(batch.values.scalar_type());
  norm->weight.copy_(batch.weight);
  norm->bias.copy_(batch.bias);
}

Step reference(const Batch& batch, int spatial) {
  const auto run = [&](auto norm) {
    fill(norm, batch);
    return step(norm, batch.values, batch.factors);
  };
  if (spatial == 3) return run(torch::nn::BatchNorm3d(kFeatures));
  if (spatial == 2) return run(torch::nn::BatchNorm2d(kFeatures));
  return run(torch::nn::BatchNorm1d(kFeatures));
}

// With Bessel's correction, as autograd differentiates it operation by operation.
Step composed(const Batch& batch) {
  const Tensor x = batch.values.clone().requires_grad_();
  const Tensor weight = batch.weight.clone().requires_grad_(), bias = batch.bias.clone().requires_grad_();
  std::vector<std::int64_t> dims = {0}, channels(x.dim(), 1);
  channels[1] = kFeatures;
  for (std::int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  const double count = static_cast<double>(x.numel()) / kFeatures;
  const Tensor mean = x.mean(dims, /*keepdim=*/true);
  const Tensor var = (x - mean).square().sum(dims, /*keepdim=*/true) / (count - 1);
  const Tensor y = (x - mean) * (var + 1e-5).pow(-0.5) * weight.view(channels) + bias.view(channels);
  (y * batch.factors).sum().backward();
  return {y.detach(),
          x.grad(),
          weight.grad(),
          bias.grad(),
          0.1 * mean.detach().flatten(),
          0.9 + 0.1 * var.detach().flatten()};
}

struct Case {
  int ranks;
  int spatial;
  int correction;
  bool empty;
  torch::Dtype dtype;
  Way way = Way::inproc;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.ranks << " ranks, " << c.spatial << "d, correction " << c.correction << (c.empty ? ", one empty" : "")
       << ", " << c10::toString(c.dtype) << ", " << to_string(c.way);
}

class SyncBatchNormCases : public ::testing::TestWithParam<Case> {};

TEST_P(SyncBatchNormCases, IsBatchNormOfTheJoinedBatch) {
  const Case c = GetParam();
  const auto samples = shares(c.ranks, c.empty);
  std::int64_t all = 0;
  for (const std::int64_t each : samples) all += each;
  const Batch batch = batch_of(all, c.spatial, c.dtype);
  const Step expected = c.correction == 0 ? reference(batch, c.spatial) : composed(batch);
  const double close = c.dtype == torch::kDouble ? 1e-12 : 2e-4;

  std::vector<Step> steps(samples.size());
  on_ranks(c.way, c.ranks, [&](Communicator& world) {
    SyncBatchNorm norm(SyncBatchNormOptions(kFeatures).correction(c.correction), world);
    fill(norm, batch);
    steps[world.rank()] =
        step(norm, part(batch.values, samples, world.rank()), part(batch.factors, samples, world.rank()));
  });

  Tensor dweight = torch::zeros_like(batch.weight), dbias = torch::zeros_like(batch.bias);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Step& mine = steps[rank];
    EXPECT_LE(difference(mine.output, part(expected.output, samples, rank)), close * 10);
    EXPECT_LE(difference(mine.dx, part(expected.dx, samples, rank)), close * 10);
    EXPECT_LE(difference(mine.running_mean, expected.running_mean), close);
    EXPECT_LE(difference(mine.running_var, expected.running_var), close * 10);
    EXPECT_TRUE(mine.running_mean.equal(steps[0].running_mean)) << "other bits on rank " << rank;
    EXPECT_TRUE(mine.running_var.equal(steps[0].running_var)) << "other bits on rank " << rank;
    dweight += mine.dweight;
    dbias += mine.dbias;
  }
  EXPECT_LE(difference(dweight, expected.dweight), close * 10);
  EXPECT_LE(difference(dbias, expected.dbias), close * 10);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const int ranks : {1, 2, 3, 5}) {
    for (const int spatial : {0, 1, 2, 3}) {
      for (const int correction : {0, 1}) {
        for (const bool empty : {false, true}) {
          if (empty && ranks == 1) continue;
          for (const torch::Dtype dtype : {torch::kFloat, torch::kDouble}) {
            list.push_back({ranks, spatial, correction, empty, dtype});
          }
        }
      }
    }
  }
  for (const Way way : {Way::shm, Way::tcp, Way::two_hosts}) list.push_back({3, 2, 0, true, torch::kDouble, way});
  return list;
}
INSTANTIATE_TEST_SUITE_P(All, SyncBatchNormCases, ::testing::ValuesIn(cases()));

TEST(SyncBatchNorm, GradientIsTheSlopeOfTheLoss) {
  constexpr int kRanks = 3;
  const auto samples = shares(kRanks, false);
  const Batch batch = batch_of(21, 0, torch::kDouble);
  on_ranks(kRanks, [&](Communicator& world) {
    SyncBatchNorm norm(SyncBatchNormOptions(kFeatures).correction(1), world);
    fill(norm, batch);
    const Tensor factors = part(batch.factors, samples, world.rank());
    const auto loss = [&](const Tensor& whole) {
      const torch::NoGradGuard guard;
      std::vector<double> sum = {(norm(part(whole, samples, world.rank())).tanh() * factors).sum().item<double>()};
      world.allreduce(sum);
      return sum[0];
    };
    const Tensor x = part(batch.values, samples, world.rank()).clone().requires_grad_();
    (norm(x).tanh() * factors).sum().backward();
    for (const int owner : {0, 1, 2}) {
      for (std::int64_t channel = 0; channel < kFeatures; ++channel) {
        Tensor up = batch.values.clone(), down = batch.values.clone();
        const double h = channel == 2 ? 1e-4 : 1e-6;
        part(up, samples, owner)[1][channel] += h;
        part(down, samples, owner)[1][channel] -= h;
        const double slope = (loss(up) - loss(down)) / (2 * h);
        if (owner != world.rank()) continue;
        EXPECT_NEAR(x.grad()[1][channel].item<double>(), slope, 1e-7 * (1 + std::abs(slope)));
      }
    }
  });
}

TEST(SyncBatchNorm, FollowsTheMeanOverAllBatchesWithoutMomentum) {
  const Batch batch = batch_of(12, 2, torch::kDouble);
  torch::nn::BatchNorm2d expected(torch::nn::BatchNormOptions(kFeatures).momentum(c10::nullopt));
  fill(expected, batch);
  for (const double scale : {1.0, 2.0, -3.0}) expected(batch.values * scale);
  on_ranks(2, [&](Communicator& world) {
    SyncBatchNorm norm(SyncBatchNormOptions(kFeatures).momentum(std::nullopt), world);
    fill(norm, batch);
    for (const double scale : {1.0, 2.0, -3.0}) norm(batch.values.narrow(0, 6 * world.rank(), 6) * scale);
    EXPECT_LE(difference(norm->running_mean, expected->running_mean), 1e-12);
    EXPECT_LE(difference(norm->running_var, expected->running_var), 1e-11);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 3);
  });
}

TEST(SyncBatchNorm, SpeaksToNobodyInEvalMode) {
  const Batch batch = batch_of(12, 1, torch::kFloat);
  on_ranks(2, [&](Communicator& world) {
    SyncBatchNorm norm(kFeatures, world);
    SyncBatchNorm untracked(SyncBatchNormOptions(kFeatures).track_running_stats(false).affine(false), world);
    norm->eval();
    untracked->eval();
    if (world.rank() == 1) return;  // a collective would wait for it
    torch::nn::BatchNorm1d plain(kFeatures);
    plain->eval();
    EXPECT_TRUE(norm(batch.values).equal(plain(batch.values)));
    torch::nn::BatchNorm1d other(torch::nn::BatchNormOptions(kFeatures).track_running_stats(false).affine(false));
    EXPECT_LE(difference(untracked(batch.values), other(batch.values)), 1e-4);
    EXPECT_TRUE(untracked->parameters().empty());
  });
}

TEST(SyncBatchNorm, LoadsWhatBatchNormSaved) {
  const Batch batch = batch_of(12, 1, torch::kFloat);
  torch::nn::BatchNorm1d plain(kFeatures);
  fill(plain, batch);
  plain(batch.values);
  std::stringstream there, back;
  torch::save(plain, there);
  on_ranks(1, [&](Communicator& world) {
    SyncBatchNorm norm(kFeatures, world);
    torch::load(norm, there);
    EXPECT_TRUE(norm->running_var.equal(plain->running_var));
    EXPECT_TRUE(norm->weight.equal(plain->weight));
    norm(batch.values * 2);
    torch::save(norm, back);
    torch::load(plain, back);
    EXPECT_TRUE(norm->running_mean.equal(plain->running_mean));
    EXPECT_EQ(plain->num_batches_tracked.item<std::int64_t>(), 2);
    // A clone goes its own way.
    auto clone = std::dynamic_pointer_cast<SyncBatchNormImpl>(norm->clone());
    clone->forward(batch.values);
    EXPECT_FALSE(norm->running_mean.equal(clone->running_mean));
  });
}

TEST(SyncBatchNorm, SaysWhatIsWrongWithAnInput) {
  // In eval mode it is this rank's business alone, which may go on.
  on_ranks(2, [](Communicator& world) {
    SyncBatchNorm norm(kFeatures, world);
    norm->eval();
    const auto error = [&](const Tensor& input) { return usage_error([&] { norm(input); }); };
    const std::string expected = "SyncBatchNorm: expected an input of [N, 3, ...] on the CPU, got ";
    EXPECT_EQ(error(torch::ones({4})), expected + "[4]");
    EXPECT_EQ(error(torch::ones({4, 5, 6})), expected + "[4, 5, 6]");
    EXPECT_EQ(error(torch::ones({4, 3}, torch::kLong)), expected + "one of Long");
    EXPECT_EQ(error({}), expected + "an undefined tensor");
    norm->train();
    EXPECT_EQ(error(torch::ones({world.rank(), 3})),
              "SyncBatchNorm: expected more than 1 value per channel when training, got 1 on 2 ranks together");
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
    EXPECT_EQ(error(torch::ones({1, 3})), "nothing was thrown");
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
    EXPECT_EQ(usage_error([&] { SyncBatchNorm(SyncBatchNormOptions(3).correction(2), world); }),
              "SyncBatchNorm: a correction of 2, but it is 0 or 1");
    EXPECT_EQ(usage_error([&] { SyncBatchNorm(0, world); }),
              "SyncBatchNorm: 0 features, but there must be one at least");
    const Tensor x = torch::rand({4, 3}).requires_grad_();
    const Tensor loss = norm(x).square().sum();
    EXPECT_EQ(usage_error([&] { torch::autograd::grad({loss}, {x}, {}, c10::nullopt, /*create_graph=*/true); }),
              "backward of a synchronised batch norm with create_graph: it can't be differentiated twice");
  });
}

TEST(SyncBatchNorm, WhatIsWrongOnOneRankIsToldByAll) {
  for (const Way way : kWays) {
    const auto input = outcomes(way, 3, [](Communicator& world) {
      SyncBatchNorm norm(kFeatures, world);
      try {
        norm(torch::ones({4, world.rank() == 1 ? 5 : 3}));
      } catch (const Error&) {
        EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
        throw;
      }
    });
    expect_all_say(input, {"expected an input of [N, 3, ...] on the CPU, got [4, 5]"});
    expect_all_say({input[0], input[2]}, {"rank 1"});
  }
  const auto converted = outcomes(3, [](Communicator& world) {
    torch::nn::Sequential net{torch::nn::BatchNorm1d(kFeatures)};
    convert_sync_batch_norm(net, world);
    net->forward(torch::ones({4, world.rank() == 1 ? 5 : 3}));
  });
  expect_all_say(converted, {"BatchNorm1dImpl '0': expected an input of [N, 3, ...]"});
  const auto twice = outcomes(3, [](Communicator& world) {
    SyncBatchNorm norm(kFeatures, world);
    const Tensor x = torch::rand({4, 3}).requires_grad_();
    torch::autograd::grad({norm(x).square().sum()}, {x}, {}, c10::nullopt, /*create_graph=*/world.rank() == 1);
  });
  expect_all_say(twice, {"it can't be differentiated twice"});
  expect_all_say({twice[0], twice[2]}, {"rank 1"});
}

// A rank that has run out of batches hears what the other calls, and has the same buffers in the end.
TEST(SyncBatchNorm, GoesOnWithoutARankThatHasNoBatches) {
  const Batch batch = batch_of(6, 1, torch::kDouble);
  const Step expected = reference(batch, 1);
  on_ranks(2, [&](Communicator& world) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(kFeatures), torch::nn::ReLU(), SyncBatchNorm(kFeatures, world));
    net->to(torch::kDouble);
    convert_sync_batch_norm(net, world);
    const auto layers = detail::synced_layers(*net);
    ASSERT_EQ(layers.size(), 2);
    const auto notices = std::make_shared<detail::Notices>(world);
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i].norm->announce_to(notices, static_cast<std::int64_t>(i));
    using detail::Announced;
    if (world.rank() == 0) {
      net->forward(batch.values.clone().requires_grad_()).sum().backward();
      notices->hear();
    } else {
      std::vector<std::pair<Announced, std::int64_t>> heard;
      for (;;) {
        const detail::Notice notice = notices->hear();
        if (notice.what == Announced::nothing) break;
        heard.emplace_back(notice.what, notice.which);
        if (notice.what == Announced::statistics) layers[notice.which].shadow_statistics();
        if (notice.what == Announced::sums) layers[notice.which].shadow_sums();
      }
      EXPECT_EQ(
          heard,
          (std::vector<std::pair<Announced, std::int64_t>>{
              {Announced::statistics, 0}, {Announced::statistics, 1}, {Announced::sums, 1}, {Announced::sums, 0}}));
    }
    EXPECT_LE(difference(net->named_buffers()["0.running_mean"], expected.running_mean), 1e-12);
    for (const Tensor& buffer : net->buffers()) {
      const Tensor mine = buffer.to(torch::kDouble).reshape(-1);
      std::vector<double> sums(mine.data_ptr<double>(), mine.data_ptr<double>() + mine.numel());
      const std::vector<double> before = sums;
      world.allreduce(sums, Op::max);
      EXPECT_EQ(sums, before);
    }
  });
}

}  // namespace
}  // namespace trireme::test
