#include "torch/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::detail {

std::optional<Dtype> reducible(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return Dtype::f32;
    case at::kDouble: return Dtype::f64;
    case at::kHalf: return Dtype::f16;
    case at::kBFloat16: return Dtype::bf16;
    case at::kChar: return Dtype::i8;
    case at::kByte: return Dtype::u8;
    case at::kInt: return Dtype::i32;
    case at::kLong: return Dtype::i64;
    default: return std::nullopt;
  }
}

Buffer buffer_of(const at::Tensor& tensor) {
  const std::optional<Dtype> dtype = reducible(tensor.scalar_type());
  if (!dtype) throw UsageError(fmt::format("elements of {} can't be reduced", describe(tensor)));
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), *dtype};
}

Buffer bytes_of_tensor(const at::Tensor& tensor) {
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()) * tensor.element_size(), Dtype::u8};
}

std::string describe(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(sizes.begin(), sizes.end(), ", "));
}

}  // namespace trireme::detail
