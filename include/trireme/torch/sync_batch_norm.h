// Batch norm over the joined batch of all ranks: with it, a model trains on P ranks as on one with the P-fold batch.
//
//   trireme::convert_sync_batch_norm(net, world);   // every torch::nn::BatchNorm1d, 2d and 3d in net
//   trireme::SyncBatchNorm norm(64, world);         // or one made as such
//
// A forward pass while training is one allgather of (count, mean, sum of squared differences) a channel, and its
// backward one allreduce of two sums a channel, in double whatever the input is. All ranks get the same statistics, to
// the bit. In eval mode nothing is sent. The gradients of weight and bias are this rank's own, for
// DistributedDataParallel to average. All ranks must call forward and backward alike; a rank may have no samples at
// all: an input of [0, C, ...].
#pragma once

#include "trireme/communicator.h"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <torch/nn/modules/batchnorm.h>
#include <utility>

namespace trireme {

namespace detail {
class SyncNorm;
}

struct SyncBatchNormOptions {
  SyncBatchNormOptions(std::int64_t num_features) : num_features_(num_features) {}

  TORCH_ARG(std::int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  /// What part of the running statistics a batch replaces; nullopt: they are the mean over all batches.
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  TORCH_ARG(bool, affine) = true;
  TORCH_ARG(bool, track_running_stats) = true;
  /// What is taken off the number of values in the variance that normalises: 0, as usual, or 1, Bessel's correction.
  /// The running variance always has it.
  TORCH_ARG(int, correction) = 0;
};

/// Takes [N, C, ...] of any number of dimensions from 2. Its parameters and buffers are those of
/// torch::nn::BatchNorm1d, so that either loads what the other has saved. One thread at a time may use it.
class SyncBatchNormImpl : public torch::nn::NormImplBase<1, SyncBatchNormImpl, SyncBatchNormOptions> {
 public:
  /// All ranks call it alike: it makes a communicator of its own, which clones share.
  SyncBatchNormImpl(const SyncBatchNormOptions& options, Communicator world);
  SyncBatchNormImpl(const SyncBatchNormImpl& other);
  ~SyncBatchNormImpl() override;

  torch::Tensor forward(const torch::Tensor& input);

  void pretty_print(std::ostream& stream) const override;

  /// Trireme's own: what Join speaks to.
  const std::shared_ptr<detail::SyncNorm>& shared() const { return shared_; }

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  std::shared_ptr<detail::SyncNorm> shared_;
};
TORCH_MODULE(SyncBatchNorm);

/// Makes every torch::nn::BatchNorm1d, 2d and 3d in a tree of modules compute over all ranks, and returns how many.
/// All ranks call it alike. They get one communicator together, apart from `world`.
///
/// Modules stay the objects they were, so that it works whoever holds them: a member of a user's class, a Sequential, a
/// ModuleList. Parameters, buffers, options and mode stay too. Two things to know: a clone() is a plain batch norm
/// until it is converted as well; and LibTorch itself refuses an input with one value a channel before Trireme sees it,
/// where SyncBatchNorm only asks that all ranks together have more.
///
/// Throws UsageError that names the module if one keeps running statistics and is none of those, or is not on the CPU;
/// then nothing has been converted.
std::size_t convert_sync_batch_norm(torch::nn::Module& module, Communicator world);

/// The same for a holder or a pointer.
template <typename Holder>
requires(!std::derived_from<Holder, torch::nn::Module>) std::size_t
    convert_sync_batch_norm(Holder& module, Communicator world) {
  return convert_sync_batch_norm(static_cast<torch::nn::Module&>(*module), std::move(world));
}

}  // namespace trireme
