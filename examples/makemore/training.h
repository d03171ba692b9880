// The training loop, as a user of DistributedDataParallel writes it; all else in it is for showing what it does.
#pragma once

#include "model.h"
#include "options.h"
#include "timeline.h"
#include "words.h"

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace makemore {

struct Training {
  std::vector<double> losses = {};        ///< of each step, the mean over all ranks
  std::vector<StepSpans> spans = {};      ///< of the last steps, on this rank
  std::vector<std::size_t> buckets = {};  ///< bytes of each
  double samples_per_second = 0;          ///< of all ranks together
  double waited = 0;                      ///< the part of the time that went by in communication that nothing hid
};

/// What there is to throw when a loss is infinite or not a number.
std::runtime_error not_finite(const char* when, std::size_t step, double rate);

/// All ranks call it alike, and throw alike if the loss is not finite.
Training train(trireme::Communicator& world, Model& model, const Samples& samples, const Options& options);

}  // namespace makemore
