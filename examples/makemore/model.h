// A letter's embedding, a hidden layer with batch norm, and the letter that comes next: the character MLP of Bengio et
// al., "A Neural Probabilistic Language Model", 2003, as the makemore lectures have it.
#pragma once

#include "trireme/torch/sync_batch_norm.h"

#include <cstdint>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace makemore {

struct ModelOptions {
  std::int64_t embedding = 10;
  std::int64_t hidden = 64;
  std::uint64_t seed = 2147483647;
};

/// Batch norm has Bessel's correction and is over the joined batch of `world`; by that one exception it is not a plain
/// LibTorch model. Parameters depend on the seed alone, and none starts as zeros, which could hide a wrong gradient.
class ModelImpl : public torch::nn::Module {
 public:
  ModelImpl(const ModelOptions& options, const trireme::Communicator& world);

  /// contexts [n, kBlock] to logits [n, kLetters].
  torch::Tensor forward(const torch::Tensor& contexts);

  /// A word, letter by letter, as likely as the model takes it for. The model should be in eval mode. None if its
  /// parameters have grown so large that it knows no more how likely a letter is.
  std::optional<std::string> sample(torch::Generator& generator);

  torch::Tensor C, W1, b1, W2, b2;  // NOLINT(readability-identifier-naming): the names of the lectures
  trireme::SyncBatchNorm norm;
};
TORCH_MODULE(Model);

}  // namespace makemore
