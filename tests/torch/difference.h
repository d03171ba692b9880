// How far tensors are from what they should be.
#pragma once

#include <gtest/gtest.h>

#include <torch/torch.h>
#include <vector>

namespace trireme::test {

/// The largest of any element, over all tensors. Not a number if one is: std::max would pass over it, and all would
/// seem well.
inline double largest_difference(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  torch::Tensor largest = torch::zeros({}, torch::kDouble);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].numel() == 0) continue;
    const torch::Tensor difference = a[i].detach().to(torch::kDouble) - b[i].detach().to(torch::kDouble);
    largest = torch::maximum(largest, difference.abs().max());
  }
  return largest.item<double>();
}

}  // namespace trireme::test
