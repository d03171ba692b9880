#include "trireme/torch/sync_batch_norm.h"

#include "torch/sync_norm.h"

#include <ostream>

namespace trireme {

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& settings, Communicator world)
    : NormImplBase(settings),
      shared_(std::make_shared<detail::SyncNorm>(world.split(0, world.rank()), settings.num_features(),
                                                 settings.correction(), "SyncBatchNorm")) {}

// A clone is another layer: only the communicator is the same.
SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormImpl& other)
    : Module(other),
      NormImplBase(other),
      shared_(std::make_shared<detail::SyncNorm>(other.shared_->ranks(), other.shared_->features(),
                                                 other.shared_->correction(), other.shared_->name())) {}

SyncBatchNormImpl::~SyncBatchNormImpl() = default;

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  if (is_training()) return shared_->forward(input, weight, bias, detail::next_batch(*this), options.eps());
  // Only this rank's business.
  _check_input_dim(input);
  if (options.track_running_stats()) {
    return torch::batch_norm(input, weight, bias, running_mean, running_var, /*training=*/false, /*momentum=*/0,
                             options.eps(), /*cudnn_enabled=*/false);
  }
  // By this rank's batch: ranks need not evaluate alike.
  const auto alone =
      std::make_shared<detail::SyncNorm>(std::nullopt, shared_->features(), shared_->correction(), shared_->name());
  return alone->forward(input, weight, bias, {}, options.eps());
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  const std::string wrong = shared_->what_is_wrong_with(input);
  if (!wrong.empty()) throw UsageError(wrong);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "trireme::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "none";
  }
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats()
         << ", correction=" << options.correction() << ")";
}

}  // namespace trireme
