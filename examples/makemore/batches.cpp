#include "batches.h"

#include <fmt/format.h>

#include <stdexcept>
#include <torch/torch.h>

namespace makemore {

Batches::Batches(Samples samples, std::int64_t batch, std::uint64_t seed, int rank, int ranks)
    : samples_(std::move(samples)),
      batch_(static_cast<std::size_t>(batch)),
      sampler_(static_cast<std::size_t>(samples_.size()), rank, ranks, {.seed = seed, .drop_last = true}) {
  if (sampler_.left() < batch_) {
    throw std::runtime_error(fmt::format(
        "the text has {} letters to train on, too few for one batch of {} on each of {} ranks: name a longer text, or "
        "give a smaller --batch",
        samples_.size(), batch, ranks));
  }
}

Samples Batches::next() {
  if (sampler_.left() < batch_) sampler_.set_epoch(sampler_.epoch() + 1);
  const std::vector<std::size_t> chosen = *sampler_.next(batch_);
  const torch::Tensor numbers = torch::tensor(std::vector<std::int64_t>(chosen.begin(), chosen.end()), torch::kLong);
  return {samples_.contexts.index_select(0, numbers), samples_.targets.index_select(0, numbers)};
}

}  // namespace makemore
