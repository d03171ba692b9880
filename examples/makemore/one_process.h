// The same training in one process, to compare with: no ranks, no autograd, no optimiser, no batch norm module. Only
// arithmetic that is written out, on the joined batches.
#pragma once

#include "batches.h"
#include "by_hand.h"
#include "model.h"

#include <cstdint>
#include <vector>

namespace makemore {

/// Copies of a model's parameters.
Weights weights_of(const ModelImpl& model);

/// `weights` become what so many steps make of them. Returns the loss of each step.
std::vector<double> train_in_one_process(Weights& weights, Batches joined, std::int64_t steps, double rate);

double largest_difference(const Weights& a, const Weights& b);

}  // namespace makemore
