// Tensors as collectives see them.
#pragma once

#include "trireme/communicator.h"

#include <ATen/core/Tensor.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme::detail {

/// The dtype of elements that can be reduced; none for others, such as complex ones.
std::optional<Dtype> reducible(at::ScalarType type);

/// A dense tensor's memory, which must be in one piece; its elements are reduced as they lie there.
Buffer buffer_of(const at::Tensor& tensor);

/// The same as bytes, whatever the elements are.
Buffer bytes_of_tensor(const at::Tensor& tensor);

/// "float32 [3, 4]"
std::string describe(const at::Tensor& tensor);

}  // namespace trireme::detail
