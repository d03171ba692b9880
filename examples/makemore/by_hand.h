// The same model without autograd: forward in small operations, and backward through each of them, written out.
// Variables have the names of the notes, which say what each is.
#pragma once

#include <string>
#include <torch/types.h>
#include <utility>
#include <vector>

namespace makemore {

// NOLINTBEGIN(readability-identifier-naming)
struct Weights {
  torch::Tensor C, W1, b1, W2, b2, bngain, bnbias;
};

/// Everything that forward computes on its way.
struct Forward {
  torch::Tensor emb, embcat, hprebn, bnmeani, bndiff, bndiff2, bnvar, bnvar_inv, bnraw, hpreact, h, logits, logit_maxes,
      norm_logits, counts, counts_sum, counts_sum_inv, probs, logprobs, loss;
};

/// The gradient of the loss by each of them, and by each weight.
struct Backward {
  torch::Tensor logprobs, probs, counts_sum_inv, counts_sum, counts, norm_logits, logit_maxes, logits, h, W2, b2,
      hpreact, bngain, bnbias, bnraw, bnvar_inv, bnvar, bndiff2, bndiff, bnmeani, hprebn, embcat, W1, b1, emb, C;
};
// NOLINTEND(readability-identifier-naming)

/// contexts [n, 3] and targets [n] of numbers of letters; bngain and bnbias are [1, hidden]. Autograd may watch.
Forward forward_by_hand(const Weights& weights, const torch::Tensor& contexts, const torch::Tensor& targets);

Backward backward_by_hand(const Weights& weights, const Forward& forward, const torch::Tensor& contexts,
                          const torch::Tensor& targets);

/// All 26 with their names, in the order that backward finds them in.
std::vector<std::pair<std::string, torch::Tensor>> named(const Backward& gradients);

/// What each of them is the gradient by, in the same order.
std::vector<std::pair<std::string, torch::Tensor>> named(const Weights& weights, const Forward& forward);

}  // namespace makemore
