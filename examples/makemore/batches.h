// Batch after batch, epoch after epoch.
#pragma once

#include "trireme/torch/sampler.h"
#include "words.h"

#include <cstdint>

namespace makemore {

/// Only whole batches: what is left of an epoch goes by. So the k-th batches of P ranks together are the k-th one of a
/// process that takes the P-fold batch, in every epoch.
class Batches {
 public:
  /// This rank's part of batches of `batch` samples a rank. Throws std::runtime_error if one epoch has none.
  Batches(Samples samples, std::int64_t batch, std::uint64_t seed, int rank, int ranks);

  Samples next();

 private:
  Samples samples_;
  std::size_t batch_;
  trireme::DistributedSampler sampler_;
};

}  // namespace makemore
