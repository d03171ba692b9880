// How gradients are put together, and the memory they lie in.
#pragma once

#include "trireme/communicator.h"
#include "trireme/torch/data_parallel.h"

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <span>
#include <vector>

namespace trireme::detail {

/// Parameters by bucket, in the order of reduction. They are taken in the given order; a bucket holds one dtype, and is
/// full with the parameter that brings it to its limit: the first of a dtype has another one than those after it.
std::vector<std::vector<int>> assign_buckets(std::span<const at::Tensor> parameters, std::span<const int> order,
                                             std::size_t first_bytes, std::size_t bytes);

/// A window with room for all buckets, each parameter's gradient laid out as the parameter is.
class BucketMemory {
 public:
  BucketMemory() = default;
  BucketMemory(Communicator& ranks, std::span<const at::Tensor> parameters,
               const std::vector<std::vector<int>>& buckets);

  /// By bucket: all of it, flat.
  const std::vector<at::Tensor>& flat() const { return flat_; }

  /// By parameter: its gradient's place; not defined if it is in no bucket.
  const std::vector<at::Tensor>& gradients() const { return gradients_; }

 private:
  std::vector<at::Tensor> flat_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace trireme::detail
