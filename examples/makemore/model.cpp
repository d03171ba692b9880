#include "model.h"

#include "words.h"

#include <cmath>
#include <torch/torch.h>

namespace makemore {

ModelImpl::ModelImpl(const ModelOptions& options, const trireme::Communicator& world)
    : norm(trireme::SyncBatchNormOptions(options.hidden).correction(1), world) {
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(options.seed);
  const auto normal = [&](at::IntArrayRef shape) { return torch::randn(shape, generator); };
  const std::int64_t inputs = options.embedding * kBlock;
  C = register_parameter("C", normal({kLetters, options.embedding}));
  W1 = register_parameter("W1", normal({inputs, options.hidden}) * (5.0 / 3 / std::sqrt(inputs)));
  b1 = register_parameter("b1", normal({options.hidden}) * 0.1);  // of no use before batch norm; the lectures have it
  W2 = register_parameter("W2", normal({options.hidden, kLetters}) * 0.1);
  b2 = register_parameter("b2", normal({kLetters}) * 0.1);
  register_module("norm", norm);
  const torch::NoGradGuard guard;
  norm->weight.copy_(normal({options.hidden}) * 0.1 + 1);
  norm->bias.copy_(normal({options.hidden}) * 0.1);
}

torch::Tensor ModelImpl::forward(const torch::Tensor& contexts) {
  const torch::Tensor embedded = C.index_select(0, contexts.flatten()).view({contexts.size(0), -1});
  return torch::tanh(norm(embedded.matmul(W1) + b1)).matmul(W2) + b2;
}

std::optional<std::string> ModelImpl::sample(torch::Generator& generator) {
  const torch::NoGradGuard guard;
  constexpr std::size_t kLongest = 40;  // a model that has learnt nothing might never end a word
  std::string word;
  torch::Tensor context = torch::zeros({1, kBlock}, torch::kLong);
  while (word.size() < kLongest) {
    const torch::Tensor likely = torch::softmax(forward(context), 1);
    if (!torch::isfinite(likely).all().item<bool>()) return std::nullopt;
    const torch::Tensor next = torch::multinomial(likely, 1, /*replacement=*/true, generator);
    if (next.item<std::int64_t>() == 0) break;
    word += letter(next.item<std::int64_t>());
    context = torch::cat({context.narrow(1, 1, kBlock - 1), next}, 1);
  }
  return word;
}

}  // namespace makemore
