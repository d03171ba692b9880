#include "one_process.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <torch/torch.h>

namespace makemore {
namespace {

constexpr std::array kWeights = {&Weights::C,  &Weights::W1,     &Weights::b1,    &Weights::W2,
                                 &Weights::b2, &Weights::bngain, &Weights::bnbias};

}  // namespace

Weights weights_of(const ModelImpl& model) {
  const auto copy = [](const torch::Tensor& tensor) { return tensor.detach().clone(); };
  return {copy(model.C),
          copy(model.W1),
          copy(model.b1),
          copy(model.W2),
          copy(model.b2),
          copy(model.norm->weight).unsqueeze(0),
          copy(model.norm->bias).unsqueeze(0)};
}

std::vector<double> train_in_one_process(Weights& weights, Batches joined, std::int64_t steps, double rate) {
  const torch::NoGradGuard guard;
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Samples batch = joined.next();
    const Forward forward = forward_by_hand(weights, batch.contexts, batch.targets);
    const Backward gradients = backward_by_hand(weights, forward, batch.contexts, batch.targets);
    const std::array by_weight = {&gradients.C,  &gradients.W1,     &gradients.b1,    &gradients.W2,
                                  &gradients.b2, &gradients.bngain, &gradients.bnbias};
    for (std::size_t i = 0; i < kWeights.size(); ++i) {
      torch::Tensor& weight = weights.*kWeights[i];
      weight -= rate * by_weight[i]->view_as(weight);
    }
    losses.push_back(forward.loss.item<double>());
  }
  return losses;
}

double largest_difference(const Weights& a, const Weights& b) {
  double largest = 0;
  for (const auto weight : kWeights) {
    const double difference = (a.*weight - b.*weight).abs().max().item<double>();
    // A maximum passes over what is not a number, and then all would seem well.
    if (std::isnan(difference)) return std::numeric_limits<double>::quiet_NaN();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace makemore
