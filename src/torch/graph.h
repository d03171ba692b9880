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

/// Marks, in `used`, the parameters that any of the results was computed from. `number`: the parameter of each gradient
/// accumulator.
void mark_used(const std::vector<at::Tensor*>& results,
               const std::unordered_map<const torch::autograd::Node*, int>& number, std::vector<bool>& used);

}  // namespace trireme::detail
