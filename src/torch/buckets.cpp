#include "torch/buckets.h"

#include <ATen/Functions.h>
#include <algorithm>
#include <map>

namespace trireme::detail {
namespace {

std::size_t bytes_in(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
}

/// Every bucket starts at a cache line of its own.
std::size_t padded(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  return (bytes + kLine - 1) / kLine * kLine;
}

// No view of a larger tensor, but one of its own on the same memory: an optimiser's zero_grad() detaches gradients,
// which views don't allow.
at::Tensor tensor_at(const Window& window, std::size_t offset, const at::Tensor& like) {
  const auto options = at::TensorOptions().dtype(like.scalar_type());
  const bool same_layout = like.is_non_overlapping_and_dense();
  const auto keep = [window](void*) {};
  void* const data = window.data() + offset;
  return same_layout ? at::from_blob(data, like.sizes(), like.strides(), keep, options)
                     : at::from_blob(data, like.sizes(), keep, options);
}

}  // namespace

std::vector<std::vector<int>> assign_buckets(std::span<const at::Tensor> parameters, std::span<const int> order,
                                             std::size_t first_bytes, std::size_t bytes) {
  struct Open {
    std::vector<int> parameters;
    std::size_t bytes = 0;
    std::size_t limit = 0;
  };
  std::vector<std::vector<int>> full;
  std::map<at::ScalarType, Open> open;
  for (const int i : order) {
    auto [found, fresh] = open.try_emplace(parameters[i].scalar_type());
    Open& bucket = found->second;
    if (fresh) bucket.limit = first_bytes;
    bucket.parameters.push_back(i);
    bucket.bytes += bytes_in(parameters[i]);
    if (bucket.bytes < bucket.limit) continue;
    full.push_back(std::move(bucket.parameters));
    bucket = {.parameters = {}, .limit = bytes};
  }
  for (auto& [type, bucket] : open) {
    if (!bucket.parameters.empty()) full.push_back(std::move(bucket.parameters));
  }
  // One is reduced when all before it have been: those whose last gradient comes first go first.
  std::vector<int> position(parameters.size());
  for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int>(i);
  std::ranges::stable_sort(full, {}, [&](const std::vector<int>& bucket) { return position[bucket.back()]; });
  return full;
}

BucketMemory::BucketMemory(Communicator& ranks, std::span<const at::Tensor> parameters,
                           const std::vector<std::vector<int>>& buckets)
    : gradients_(parameters.size()) {
  std::size_t total = 0;
  for (const auto& bucket : buckets) {
    std::size_t bytes = 0;
    for (const int i : bucket) bytes += bytes_in(parameters[i]);
    total += padded(bytes);
  }
  const Window window = ranks.window(total);
  std::size_t start = 0;
  for (const auto& bucket : buckets) {
    std::size_t offset = start;
    for (const int i : bucket) {
      gradients_[i] = tensor_at(window, offset, parameters[i]);
      offset += bytes_in(parameters[i]);
    }
    const at::Tensor& first = parameters[bucket.front()];
    const auto elements = static_cast<std::int64_t>((offset - start) / first.element_size());
    flat_.push_back(at::from_blob(
        window.data() + start, {elements}, [window](void*) {}, at::TensorOptions().dtype(first.scalar_type())));
    start += padded(offset - start);
  }
}

}  // namespace trireme::detail
