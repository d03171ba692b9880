// A small model, its batches, and what one process makes of them.
#pragma once

#include "torch/difference.h"
#include "trireme/communicator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <torch/torch.h>
#include <vector>

namespace trireme::test {

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
inline Mlp make_mlp(torch::Dtype dtype, int seed = 1) {
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

inline Batch make_batch(std::int64_t rows, torch::Dtype dtype, int seed = 3) {
  const auto options = torch::dtype(dtype);
  const auto numbers = [&](std::int64_t columns, double scale) {
    return torch::sin(torch::arange(rows * columns, options) * scale + seed).view({rows, columns});
  };
  return {numbers(5, 0.7), numbers(3, 1.3)};
}

inline Tensor loss_of(const Tensor& out, const Batch& batch) { return torch::mse_loss(out, batch.y); }

inline std::vector<Tensor> gradients_of(torch::nn::Module& net) {
  std::vector<Tensor> result;
  for (const Tensor& parameter : net.parameters()) result.push_back(parameter.grad().clone());
  return result;
}

/// The gradient of the joined batch, on one process.
inline std::vector<Tensor> reference(const Batch& batch, torch::Dtype dtype) {
  Mlp net = make_mlp(dtype);
  loss_of(net(batch.x), batch).backward();
  return gradients_of(*net);
}

/// Fails if any bit differs between ranks.
inline void expect_same_bits(Communicator& world, const std::vector<Tensor>& tensors, const std::string& when) {
  std::vector<std::uint8_t> own;
  for (const Tensor& tensor : tensors) {
    const Tensor whole = tensor.detach().contiguous();
    const auto* bytes = static_cast<const std::uint8_t*>(whole.data_ptr());
    own.insert(own.end(), bytes, bytes + whole.nbytes());
  }
  std::vector<std::uint8_t> first = own;
  world.broadcast(first, 0);
  EXPECT_EQ(own, first) << when << ", rank " << world.rank();
}

inline constexpr std::int64_t kRows = 4;  ///< of a rank's batch

}  // namespace trireme::test
