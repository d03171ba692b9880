// What results depend on, and calls when backward comes to it.
#pragma once

#include <ATen/core/Tensor.h>
#include <functional>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::detail {

/// Calls something before backward goes through a node.
class PreHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit PreHook(std::function<void()> called) : called_(std::move(called)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    called_();
    return gradients;
  }

 private:
  std::function<void()> called_;
};

/// Calls something after backward has gone through a node.
class PostHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit PostHook(std::function<void()> called) : called_(std::move(called)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    called_();
    return outputs;
  }

 private:
  std::function<void()> called_;
};

/// The parameter of each gradient accumulator.
using ParameterNumbers = std::unordered_map<const torch::autograd::Node*, int>;

/// Marks, in `used`, the parameters that any of the results was computed from.
void mark_used(const std::vector<at::Tensor*>& results, const ParameterNumbers& number, std::vector<bool>& used);

/// Whether there are such parameters. Looks no further than the nearest one.
bool use_any(const std::vector<at::Tensor*>& results, const ParameterNumbers& number);

}  // namespace trireme::detail
