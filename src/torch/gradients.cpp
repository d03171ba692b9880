// Norms are summed here and not by LibTorch, whose order of additions depends on the number of threads: ranks that have
// more threads than others would come to scale the same gradients differently, and the models would drift apart.
#include "trireme/torch/gradients.h"

#include <fmt/format.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <torch/csrc/autograd/grad_mode.h>

namespace trireme {
namespace {

constexpr std::int64_t kChunk = 1 << 15;  // elements that one thread adds up alone

/// Adds up what `of` makes of each element, in an order that the number of elements alone decides.
template <typename T, typename Of>
double sum(const T* data, std::int64_t elements, Of of) {
  const std::int64_t chunks = (elements + kChunk - 1) / kChunk;
  std::vector<double> partial(static_cast<std::size_t>(chunks));
  at::parallel_for(0, chunks, 4, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      constexpr std::int64_t kLanes = 8;  // so that additions do not wait for each other
      std::array<double, kLanes> lanes{};
      const std::int64_t end = std::min(elements, (chunk + 1) * kChunk);
      std::int64_t i = chunk * kChunk;
      for (; i + kLanes <= end; i += kLanes) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += of(static_cast<double>(data[i + lane]));
      }
      for (; i < end; ++i) lanes[0] += of(static_cast<double>(data[i]));
      partial[chunk] = std::accumulate(lanes.begin(), lanes.end(), 0.0);
    }
  });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

template <typename T>
double largest(const T* data, std::int64_t elements) {
  double most = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    const double size = std::abs(static_cast<double>(data[i]));
    if (!(size <= most)) most = size;  // takes what is not a number too
    if (std::isnan(most)) break;
  }
  return most;
}

/// One tensor's part of the norm: the largest element, or the sum of powers.
double part_of(const torch::Tensor& values, double norm_type) {
  const torch::Tensor dense = values.contiguous();
  return AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, dense.scalar_type(), "clip_grad_norm", [&]() -> double {
        const auto* data = dense.data_ptr<scalar_t>();
        if (std::isinf(norm_type)) return largest(data, dense.numel());
        if (norm_type == 1) return sum(data, dense.numel(), [](double value) { return std::abs(value); });
        if (norm_type == 2) return sum(data, dense.numel(), [](double value) { return value * value; });
        return sum(data, dense.numel(), [=](double value) { return std::pow(std::abs(value), norm_type); });
      });
}

/// What a gradient's norm is of. A sparse one may name a row several times: such are added up first.
torch::Tensor values_of(const torch::Tensor& gradient) {
  return gradient.is_sparse() ? gradient.coalesce().values() : gradient;
}

[[noreturn]] void refuse(const std::vector<torch::Tensor>& parameters, double norm) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined() || std::isfinite(part_of(values_of(gradient), INFINITY))) continue;
    throw UsageError(
        fmt::format("gradients can't be clipped: the first that is not finite is that of parameter {}; "
                    "lower the learning rate, or give NonFinite::skip to go on without this step",
                    i));
  }
  throw UsageError(
      fmt::format("gradients can't be clipped: each is finite, but their norm is {}; lower the learning "
                  "rate, or give NonFinite::skip to go on without this step",
                  norm));
}

}  // namespace

double clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm, double norm_type,
                      NonFinite non_finite) {
  if (!(max_norm >= 0) || !(norm_type > 0)) {
    throw UsageError(
        fmt::format("clip_grad_norm to {} in the {}-norm: the first may not be negative, the second must "
                    "be more than 0",
                    max_norm, norm_type));
  }
  const torch::NoGradGuard no_grad;
  const bool of_largest = std::isinf(norm_type);
  double total = 0;
  std::vector<torch::Tensor> gradients;
  std::set<const void*> seen;  // modules may share a parameter
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& gradient = parameters[i].grad();
    if (!gradient.defined() || !seen.insert(parameters[i].unsafeGetTensorImpl()).second) continue;
    if (!gradient.is_floating_point() || !gradient.is_cpu()) {
      throw UsageError(
          fmt::format("the gradient of parameter {} is of {} on {}: only floating point on the CPU can be "
                      "clipped yet",
                      i, c10::toString(gradient.scalar_type()), gradient.device().str()));
    }
    gradients.push_back(gradient);
    const double part = part_of(values_of(gradient), norm_type);
    // std::max would lose what is not a number.
    total = !of_largest ? total + part : std::isnan(part) || part > total ? part : total;
    if (std::isnan(total)) break;
  }
  const double norm = of_largest || norm_type == 1 ? total
                      : norm_type == 2             ? std::sqrt(total)
                                                   : std::pow(total, 1 / norm_type);
  if (!std::isfinite(norm)) {
    if (non_finite == NonFinite::refuse) refuse(parameters, norm);
    return norm;
  }
  const double scale = max_norm / (norm + 1e-6);  // as torch::nn::utils::clip_grad_norm_ has it
  if (scale < 1) {
    for (const torch::Tensor& gradient : gradients) gradient.mul_(scale);
  }
  return norm;
}

double average_metric(Communicator& world, double value, double weight) {
  // All ranks see all values, and so all refuse the same ones.
  std::vector<double> all(2 * static_cast<std::size_t>(world.ranks()));
  world.allgather(std::vector{value, weight}, all);
  double sum = 0;
  double weights = 0;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    const double theirs = all[2 * rank + 1];
    if (!(theirs >= 0) || std::isinf(theirs)) {
      throw UsageError(
          fmt::format("the mean of a metric: rank {} gives it weight {}, which must be 0 or more", rank, theirs));
    }
    if (theirs == 0) continue;
    sum += theirs * all[2 * rank];
    weights += theirs;
  }
  if (weights == 0) {
    throw UsageError(fmt::format("the mean of a metric: all {} ranks give it weight 0, so there is nothing to average",
                                 world.ranks()));
  }
  return sum / weights;
}

}  // namespace trireme
