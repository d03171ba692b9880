// For ranks that have different numbers of batches.
//
//   trireme::Join join(model, [&] { optimizer.step(); });
//   for (auto& batch : *loader) { ... the step as ever ... }
//   join.finish();
//
// A rank that has run out of batches takes part in what the others still do, in finish(), with gradients of zero that
// do not count: the mean is that of the ranks which have batches, weighted by their samples if they weigh() their losses. It
// applies the same gradients as they do, so that model and optimiser stay the same on all ranks. SyncBatchNorm modules
// of the model take part too. Gradients that a rank has gathered within no_sync() when it runs out are dropped. While a
// Join lives, every reduction is announced by a small one. It is for one pass over the batches: each epoch has its own.
#pragma once

#include "trireme/torch/data_parallel.h"

#include <functional>
#include <memory>

namespace trireme {

class Join {
 public:
  /// All ranks call it alike, and not between a forward and its backward. `step` does what a rank does after backward,
  /// such as optimizer.step(). Without one, a rank that ran out of batches gets the model of one that did not, but its
  /// optimiser falls behind.
  template <typename Net>
  explicit Join(DistributedDataParallel<Net>& model, std::function<void()> step = {})
      : Join(model.core(), std::move(step)) {}

  /// This rank has no more batches: returns when no rank has. Once only.
  void finish();

  /// Without finish(), as when a batch throws, the other ranks hear that this one gave up.
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

 private:
  Join(detail::DataParallel& model, std::function<void()> step);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
