#include "trireme/torch/join.h"

#include "torch/data_parallel.h"
#include "torch/give_up.h"
#include "torch/notices.h"
#include "torch/sync_norm.h"

namespace trireme {

class Join::Impl {
 public:
  Impl(detail::DataParallel::Impl& model, std::function<void()> step)
      : model_(model),
        step_(std::move(step)),
        notices_(std::make_shared<detail::Notices>(model.ranks())),
        layers_(detail::synced_layers(model.module())) {
    model_.use(notices_);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      layers_[i].norm->announce_to(notices_, static_cast<std::int64_t>(i));
    }
  }

  void finish() {
    if (finished_) detail::give_up(model_.ranks(), "Join::finish() was called again: make a new Join for each epoch");
    while (true) {
      const detail::Notice notice = notices_->hear();
      if (notice.what == detail::Announced::nothing) break;
      shadow(notice);
    }
    stop();
    const int last = notices_->last_at_work();
    if (!step_ && last >= 0) model_.broadcast_state(last);
    finished_ = true;
  }

  bool finished() const { return finished_; }
  // Others hear the reason before what is under way here ends with an error of its own.
  void give_up() {
    try {
      model_.ranks().abort("left its batches without Join::finish(), as when something throws");
    } catch (const Error&) {
      // They know already.
    }
    stop();
  }

 private:
  void stop() {
    model_.use(nullptr);
    for (const detail::SyncedLayer& layer : layers_) layer.norm->announce_to(nullptr, 0);
  }

  void shadow(const detail::Notice& notice) {
    if (notice.what == detail::Announced::buffers) {
      model_.broadcast_buffers(notice.last_at_work);
    } else if (notice.what == detail::Announced::statistics) {
      layers_[notice.which].shadow_statistics();
    } else if (notice.what == detail::Announced::sums) {
      layers_[notice.which].shadow_sums();
    } else {
      model_.reducer().shadow(notice, [this] {
        if (step_) step_();
      });
    }
  }

  detail::DataParallel::Impl& model_;
  std::function<void()> step_;
  std::shared_ptr<detail::Notices> notices_;
  std::vector<detail::SyncedLayer> layers_;  ///< of the model that are batch norms over all ranks
  bool finished_ = false;
};

Join::Join(detail::DataParallel& model, std::function<void()> step)
    : impl_(std::make_unique<Impl>(model.impl(), std::move(step))) {}

void Join::finish() { impl_->finish(); }

Join::~Join() {
  if (!impl_->finished()) impl_->give_up();
}

}  // namespace trireme
