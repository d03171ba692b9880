// What results depend on.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <unordered_map>
#include <vector>

namespace trireme::detail {

/// Marks, in `used`, the parameters that any of the results was computed from. `number`: the parameter of each gradient
/// accumulator.
void mark_used(const std::vector<at::Tensor*>& results,
               const std::unordered_map<const torch::autograd::Node*, int>& number, std::vector<bool>& used);

}  // namespace trireme::detail
