// Clipping by the global norm, and means of metrics.
#include "trireme/torch/gradients.h"

#include "support/throws.h"
#include "torch/ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <torch/torch.h>

namespace trireme::test {
namespace {

torch::Tensor with_gradient(const torch::Tensor& gradient) {
  torch::Tensor parameter = torch::zeros(gradient.sizes(), gradient.options().layout(torch::kStrided));
  parameter.requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

std::vector<torch::Tensor> some_parameters(at::ScalarType type = torch::kFloat) {
  torch::manual_seed(1);
  std::vector<torch::Tensor> parameters;
  for (const int elements : {1, 7, 8, 9, 1000, 100003}) {
    parameters.push_back(with_gradient(torch::randn({elements}, type)));
  }
  parameters.push_back(with_gradient(torch::randn({30, 20}, type).t()));
  parameters.push_back(torch::zeros({3}, torch::requires_grad()));  // without a gradient
  return parameters;
}

TEST(ClipGradNorm, IsThatOfLibTorch) {
  for (const double type : {1.0, 2.0, 3.5, static_cast<double>(INFINITY)}) {
    for (const double limit : {0.0, 0.5, 1e9}) {
      auto ours = some_parameters(torch::kDouble);
      auto theirs = some_parameters(torch::kDouble);
      const double norm = clip_grad_norm(ours, limit, type);
      EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_(theirs, limit, type), 1e-9 * norm);
      for (std::size_t i = 0; i + 1 < ours.size(); ++i) {
        EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad(), 1e-9, 0)) << i;
      }
    }
  }
}

TEST(ClipGradNorm, TakesEveryFloatingPointType) {
  for (const auto type : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    const torch::Tensor parameter = with_gradient(torch::full({4}, 3.0, type));
    EXPECT_EQ(clip_grad_norm({parameter}, 3), 6);
    EXPECT_TRUE(torch::allclose(parameter.grad().to(torch::kFloat), torch::full({4}, 1.5)));
  }
}

TEST(ClipGradNorm, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  std::vector<double> norms;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    norms.push_back(clip_grad_norm({with_gradient(torch::arange(3'000'001, torch::kFloat).sin())}, 1));
  }
  at::set_num_threads(before);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
}

TEST(ClipGradNorm, AddsUpTheRowsOfSparseGradients) {
  const auto indices = torch::tensor({{1, 3, 1}}, torch::kLong);
  const auto values = torch::tensor({{1.F, 2.F}, {0.F, 4.F}, {2.F, -2.F}});
  const torch::Tensor sparse = with_gradient(torch::sparse_coo_tensor(indices, values, {5, 2}));
  const torch::Tensor dense = with_gradient(torch::full({1}, 12.F));
  // The rows are (3, 0) and (0, 4).
  EXPECT_EQ(clip_grad_norm({sparse, dense}, 6.5), 13);
  EXPECT_TRUE(sparse.grad().is_sparse());
  EXPECT_NEAR(dense.grad().item<float>(), 6, 1e-5);
  EXPECT_TRUE(torch::allclose(sparse.grad().to_dense()[1], torch::tensor({1.5F, 0.F})));
  EXPECT_TRUE(torch::allclose(sparse.grad().to_dense()[3], torch::tensor({0.F, 2.F})));
}

// Tied modules have the same parameter, and parameters() names it as often as there are modules.
TEST(ClipGradNorm, CountsAndScalesASharedParameterOnce) {
  struct Tied : torch::nn::Module {
    Tied() : layer(2, 3) {
      register_module("first", layer);
      register_module("second", layer);
    }
    torch::nn::Linear layer;
  };
  Tied net;
  net.layer->weight.mutable_grad() = torch::full({3, 2}, 2.F);
  net.layer->bias.mutable_grad() = torch::full({3}, 5.F);
  ASSERT_EQ(net.parameters().size(), 4U);
  EXPECT_NEAR(clip_grad_norm(net.parameters(), 1), std::sqrt(6 * 4 + 3 * 25), 1e-12);
  EXPECT_NEAR(clip_grad_norm(net.parameters(), 1), 1, 1e-6);
}

TEST(ClipGradNorm, NamesTheFirstThatIsNotFinite) {
  for (const double type : {1.0, 2.0, 3.0, static_cast<double>(INFINITY)}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      auto parameters = some_parameters();
      parameters[5].grad()[77777] = bad;
      parameters[6].grad()[3][3] = NAN;
      const auto before = parameters[1].grad().clone();
      const std::string message = usage_error([&] { clip_grad_norm(parameters, 1, type); });
      EXPECT_NE(message.find("that of parameter 5"), std::string::npos) << message;
      EXPECT_FALSE(std::isfinite(clip_grad_norm(parameters, 1, type, NonFinite::skip)));
      EXPECT_TRUE(torch::equal(parameters[1].grad(), before));
    }
  }
  const auto huge = with_gradient(torch::full({2}, 1e200, torch::kDouble));
  EXPECT_NE(usage_error([&] { clip_grad_norm({huge}, 1); }).find("each is finite"), std::string::npos);
}

TEST(ClipGradNorm, RefusesWrongArguments) {
  const auto good = with_gradient(torch::ones({2}));
  for (const double limit : {-1.0, std::nan("")}) {
    EXPECT_NE(usage_error([&] { clip_grad_norm({good}, limit); }).find("negative"), std::string::npos);
  }
  for (const double type : {0.0, -2.0, std::nan("")}) {
    EXPECT_NE(usage_error([&] { clip_grad_norm({good}, 1, type); }).find("more than 0"), std::string::npos);
  }
  const auto complex = with_gradient(torch::ones({2}, torch::kComplexFloat));
  EXPECT_NE(usage_error([&] { clip_grad_norm({good, complex}, 1); }).find("parameter 1"), std::string::npos);
  EXPECT_EQ(clip_grad_norm({}, 1), 0);
  EXPECT_EQ(clip_grad_norm({with_gradient(torch::ones({0}))}, 1), 0);
}

/// What each rank's call gave, where nothing may be thrown.
template <typename Call>
std::vector<double> results(int ranks, Call call) {
  std::vector<double> all(ranks);
  on_ranks(ranks, [&](Communicator& world) { all[world.rank()] = call(world); });
  return all;
}

TEST(AverageMetric, IsTheWeightedMean) {
  for (const int ranks : {1, 3, 5}) {
    double sum = 0;
    double weights = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sum += (rank + 1) * std::sqrt(rank + 2.0);
      weights += rank + 1;
    }
    const auto means = results(ranks, [](Communicator& world) {
      return average_metric(world, std::sqrt(world.rank() + 2.0), world.rank() + 1);
    });
    for (const double mean : means) {
      EXPECT_NEAR(mean, sum / weights, 1e-14);
      EXPECT_EQ(std::memcmp(&mean, means.data(), sizeof(mean)), 0);
    }
    for (const double mean : results(ranks, [](Communicator& world) { return average_metric(world, world.rank()); })) {
      EXPECT_DOUBLE_EQ(mean, (ranks - 1) / 2.0);
    }
  }
}

TEST(AverageMetric, PassesOverRanksWithoutSamples) {
  for (const double mean : results(3, [](Communicator& world) {
         return world.rank() == 1 ? average_metric(world, NAN, 0) : average_metric(world, 5, 10);
       })) {
    EXPECT_EQ(mean, 5);
  }
}

TEST(AverageMetric, RefusesWeightsOnAllRanks) {
  expect_all_say(outcomes(3, [](Communicator& world) { average_metric(world, 1, 0); }),
                 {"UsageError: ", "all 3 ranks give it weight 0"});
  for (const double bad : {-1.0, static_cast<double>(INFINITY), std::nan("")}) {
    expect_all_say(outcomes(3, [=](Communicator& world) { average_metric(world, 1, world.rank() == 2 ? bad : 1); }),
                   {"UsageError: ", "rank 2 gives it weight"});
  }
}

}  // namespace
}  // namespace trireme::test
