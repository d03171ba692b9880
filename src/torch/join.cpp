#include "trireme/torch/join.h"

#include "torch/data_parallel.h"
#include "torch/notices.h"

namespace trireme {

class Join::Impl {
 public:
  Impl(detail::DataParallel::Impl& model, std::function<void()> step)
      : model_(model), step_(std::move(step)), notices_(std::make_shared<detail::Notices>(model.ranks())) {
    model_.use(notices_);
  }

  void finish() {
    while (true) {
      const detail::Notice notice = notices_->hear();
      if (notice.what == detail::Announced::nothing) break;
      shadow(notice);
    }
    model_.use(nullptr);
    const int last = notices_->last_at_work();
    if (!step_ && last >= 0) model_.broadcast_state(last);
    finished_ = true;
  }

  bool finished() const { return finished_; }
  void give_up() {
    model_.use(nullptr);
    model_.ranks().abort("left its batches without Join::finish(), as when something throws");
  }

 private:
  void shadow(const detail::Notice& notice) {
    if (notice.what == detail::Announced::buffers) {
      model_.broadcast_buffers(notice.last_at_work);
    } else {
      model_.reducer().shadow(notice, [this] {
        if (step_) step_();
      });
    }
  }

  detail::DataParallel::Impl& model_;
  std::function<void()> step_;
  std::shared_ptr<detail::Notices> notices_;
  bool finished_ = false;
};

Join::Join(detail::DataParallel& model, std::function<void()> step)
    : impl_(std::make_unique<Impl>(model.impl(), std::move(step))) {}

void Join::finish() { impl_->finish(); }

Join::~Join() {
  if (impl_->finished()) return;
  try {
    impl_->give_up();
  } catch (const Error&) {
    // They know already.
  }
}

}  // namespace trireme
