// The gradients of the character model, written by hand, against autograd's: all 26 of them.
#include "examples/makemore/by_hand.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <torch/torch.h>

namespace trireme::test {
namespace {

class ByHand : public ::testing::TestWithParam<torch::Dtype> {};

TEST_P(ByHand, EachGradientIsAutograds) {
  const torch::Dtype dtype = GetParam();
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(2147483647);
  const auto normal = [&](at::IntArrayRef shape) { return torch::randn(shape, generator).to(dtype); };
  constexpr int kLetters = 27, kEmbedding = 10, kHidden = 64, kBlock = 3, kBatch = 32;
  makemore::Weights weights;
  weights.C = normal({kLetters, kEmbedding});
  weights.W1 = normal({kEmbedding * kBlock, kHidden}) * (5.0 / 3 / std::sqrt(kEmbedding * kBlock));
  weights.b1 = normal({kHidden}) * 0.1;
  weights.W2 = normal({kHidden, kLetters}) * 0.1;
  weights.b2 = normal({kLetters}) * 0.1;
  weights.bngain = normal({1, kHidden}) * 0.1 + 1;
  weights.bnbias = normal({1, kHidden}) * 0.1;
  for (torch::Tensor* weight :
       {&weights.C, &weights.W1, &weights.b1, &weights.W2, &weights.b2, &weights.bngain, &weights.bnbias}) {
    weight->requires_grad_();
  }
  const torch::Tensor contexts = torch::randint(kLetters, {kBatch, kBlock}, generator, torch::kLong);
  const torch::Tensor targets = torch::randint(kLetters, {kBatch}, generator, torch::kLong);

  const makemore::Forward forward = makemore::forward_by_hand(weights, contexts, targets);
  const auto variables = makemore::named(weights, forward);
  for (const auto& [name, variable] : variables) {
    if (!variable.is_leaf()) variable.retain_grad();
  }
  forward.loss.backward();
  EXPECT_NEAR(forward.loss.item<double>(),
              torch::nll_loss(torch::log_softmax(forward.logits, 1), targets).item<double>(), 1e-5);

  const auto gradients = makemore::named(makemore::backward_by_hand(weights, forward, contexts, targets));
  ASSERT_EQ(gradients.size(), 26);
  std::printf("%-15s | exact | close | largest difference\n", c10::toString(dtype));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& [name, gradient] = gradients[i];
    ASSERT_EQ(name, variables[i].first);
    const torch::Tensor expected = variables[i].second.grad();
    ASSERT_EQ(gradient.sizes(), expected.sizes()) << name;
    const double largest = (gradient - expected).abs().max().item<double>();
    const bool close = largest <= (dtype == torch::kDouble ? 1e-12 : 1e-6);
    std::printf("%-15s | %-5s | %-5s | %g\n", name.c_str(), gradient.equal(expected) ? "yes" : "no",
                close ? "yes" : "no", largest);
    EXPECT_TRUE(close) << name << " differs by " << largest;
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ByHand, ::testing::Values(torch::kFloat, torch::kDouble),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

}  // namespace
}  // namespace trireme::test
