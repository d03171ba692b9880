// Between backward and the optimiser's step: clipping gradients, and numbers that are to be shown for all ranks.
#pragma once

#include "trireme/communicator.h"

#include <torch/types.h>
#include <vector>

namespace trireme {

/// What clip_grad_norm does about a norm that is infinite or not a number.
enum class NonFinite : unsigned char {
  refuse,  ///< throws UsageError
  skip,    ///< leaves all gradients as they are: the caller sees it by the norm
};

/// Scales all gradients so that their norm together is at most max_norm, and returns what the norm was, as
/// torch::nn::utils::clip_grad_norm_ does. After data-parallel backward all ranks have the same gradients: this is
/// their global norm, the same bits on every rank, for any number of threads. Parameters without gradients are passed
/// over, and one that modules share counts once, though parameters() has it several times.
double clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm, double norm_type = 2,
                      NonFinite non_finite = NonFinite::refuse);

/// The mean of all ranks' values, each weighted (by how many samples it is of, say): the same bits on all ranks, which
/// all call it. A rank without samples gives weight 0, and its value is not looked at.
double average_metric(Communicator& world, double value, double weight = 1);

}  // namespace trireme
