#include "by_hand.h"

#include <torch/torch.h>

namespace makemore {

using torch::Tensor;

Forward forward_by_hand(const Weights& weights, const Tensor& contexts, const Tensor& targets) {
  const std::int64_t n = contexts.size(0);
  Forward f;
  // The letters' vectors, one after the other, and the hidden layer.
  f.emb = weights.C.index({contexts});
  f.embcat = f.emb.view({n, -1});
  f.hprebn = f.embcat.matmul(weights.W1) + weights.b1;
  // Batch norm.
  f.bnmeani = f.hprebn.sum(0, /*keepdim=*/true) * (1.0 / static_cast<double>(n));
  f.bndiff = f.hprebn - f.bnmeani;
  f.bndiff2 = f.bndiff.pow(2);
  f.bnvar = f.bndiff2.sum(0, /*keepdim=*/true) * (1.0 / static_cast<double>(n - 1));  // Bessel's correction
  f.bnvar_inv = (f.bnvar + 1e-5).pow(-0.5);
  f.bnraw = f.bndiff * f.bnvar_inv;
  f.hpreact = weights.bngain * f.bnraw + weights.bnbias;
  f.h = torch::tanh(f.hpreact);
  // The output layer.
  f.logits = f.h.matmul(weights.W2) + weights.b2;
  // Cross-entropy: what the largest logit takes away changes nothing but keeps exp small.
  f.logit_maxes = std::get<0>(f.logits.max(1, /*keepdim=*/true));
  f.norm_logits = f.logits - f.logit_maxes;
  f.counts = f.norm_logits.exp();
  f.counts_sum = f.counts.sum(1, /*keepdim=*/true);
  f.counts_sum_inv = f.counts_sum.pow(-1);
  f.probs = f.counts * f.counts_sum_inv;
  f.logprobs = f.probs.log();
  f.loss = -f.logprobs.gather(1, targets.unsqueeze(1)).mean();
  return f;
}

Backward backward_by_hand(const Weights& weights, const Forward& f, const Tensor& contexts, const Tensor& targets) {
  const torch::NoGradGuard guard;
  const auto n = static_cast<double>(contexts.size(0));
  Backward d;
  // The loss is the mean of one logprob a sample: each of those has a share of 1/n, the others have none.
  d.logprobs = torch::zeros_like(f.logprobs).scatter_(1, targets.unsqueeze(1), -1.0 / n);
  d.probs = d.logprobs / f.probs;
  // Broadcasting copied counts_sum_inv along a row: its gradient is the sum of the copies'.
  d.counts_sum_inv = (f.counts * d.probs).sum(1, /*keepdim=*/true);
  d.counts_sum = -f.counts_sum.pow(-2) * d.counts_sum_inv;
  // counts goes two ways, into probs and into the sum; what comes back adds up.
  d.counts = f.counts_sum_inv * d.probs + d.counts_sum;
  d.norm_logits = f.counts * d.counts;
  d.logit_maxes = -d.norm_logits.sum(1, /*keepdim=*/true);
  // Of a row's logits, only the largest went into logit_maxes.
  d.logits = d.norm_logits.clone().scatter_add_(1, f.logits.argmax(1, /*keepdim=*/true), d.logit_maxes);

  d.h = d.logits.matmul(weights.W2.t());
  d.W2 = f.h.t().matmul(d.logits);
  d.b2 = d.logits.sum(0);
  d.hpreact = d.h * (1.0 - f.h.pow(2));

  d.bngain = (f.bnraw * d.hpreact).sum(0, /*keepdim=*/true);
  d.bnbias = d.hpreact.sum(0, /*keepdim=*/true);
  d.bnraw = weights.bngain * d.hpreact;
  d.bnvar_inv = (f.bndiff * d.bnraw).sum(0, /*keepdim=*/true);
  d.bnvar = -0.5 * (f.bnvar + 1e-5).pow(-1.5) * d.bnvar_inv;
  d.bndiff2 = (1.0 / (n - 1)) * torch::ones_like(f.bndiff2) * d.bnvar;
  d.bndiff = f.bnvar_inv * d.bnraw + 2 * f.bndiff * d.bndiff2;
  d.bnmeani = -d.bndiff.sum(0, /*keepdim=*/true);
  d.hprebn = d.bndiff + (1.0 / n) * d.bnmeani;

  d.embcat = d.hprebn.matmul(weights.W1.t());
  d.W1 = f.embcat.t().matmul(d.hprebn);
  d.b1 = d.hprebn.sum(0);
  d.emb = d.embcat.view(f.emb.sizes());
  // A letter that occurs often gets the sum of what its copies get.
  d.C = torch::zeros_like(weights.C).index_add_(0, contexts.flatten(), d.emb.view({-1, weights.C.size(1)}));
  return d;
}

std::vector<std::pair<std::string, Tensor>> named(const Backward& d) {
  return {{"logprobs", d.logprobs},
          {"probs", d.probs},
          {"counts_sum_inv", d.counts_sum_inv},
          {"counts_sum", d.counts_sum},
          {"counts", d.counts},
          {"norm_logits", d.norm_logits},
          {"logit_maxes", d.logit_maxes},
          {"logits", d.logits},
          {"h", d.h},
          {"W2", d.W2},
          {"b2", d.b2},
          {"hpreact", d.hpreact},
          {"bngain", d.bngain},
          {"bnbias", d.bnbias},
          {"bnraw", d.bnraw},
          {"bnvar_inv", d.bnvar_inv},
          {"bnvar", d.bnvar},
          {"bndiff2", d.bndiff2},
          {"bndiff", d.bndiff},
          {"bnmeani", d.bnmeani},
          {"hprebn", d.hprebn},
          {"embcat", d.embcat},
          {"W1", d.W1},
          {"b1", d.b1},
          {"emb", d.emb},
          {"C", d.C}};
}

std::vector<std::pair<std::string, Tensor>> named(const Weights& w, const Forward& f) {
  return named(Backward{f.logprobs,    f.probs,   f.counts_sum_inv,
                        f.counts_sum,  f.counts,  f.norm_logits,
                        f.logit_maxes, f.logits,  f.h,
                        w.W2,          w.b2,      f.hpreact,
                        w.bngain,      w.bnbias,  f.bnraw,
                        f.bnvar_inv,   f.bnvar,   f.bndiff2,
                        f.bndiff,      f.bnmeani, f.hprebn,
                        f.embcat,      w.W1,      w.b1,
                        f.emb,         w.C});
}

}  // namespace makemore
