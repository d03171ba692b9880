#include "torch/forwards.h"

#include "torch/graph.h"

#include <algorithm>

namespace trireme::detail {

void Forwards::add(const std::vector<at::Tensor*>& results, bool all_known) {
  drop_dead();
  taken_ += static_cast<int>(std::erase_if(waiting_, [](const auto& each) { return each->passed; }));
  *again_ = false;
  const auto forward = std::make_shared<Forward>();
  for (const at::Tensor* result : results) {
    if (!result->defined() || !result->requires_grad()) continue;
    // A view that is changed in place gets another node, and what it is a view of keeps its own behind the new one.
    const at::Tensor whole = result->is_view() ? at::Tensor(result->_base()) : *result;
    const std::shared_ptr<torch::autograd::Node>& node = whole.grad_fn();
    if (!node) continue;
    node->add_post_hook(std::make_unique<PostHook>([forward, again = again_] {
      forward->passed = true;
      if (forward->over) *again = true;
    }));
    forward->nodes.push_back(node);
  }
  if (!all_known || forward->nodes.empty()) {
    ++unseen_;
  } else {
    waiting_.push_back(forward);
  }
}

bool Forwards::any() {
  drop_dead();
  return !waiting_.empty() || unseen_ > 0 || taken_ > 0 || (dead_ > 0 && !*again_);
}

void Forwards::backward_ended() {
  *again_ = false;
  const auto passed =
      std::stable_partition(waiting_.begin(), waiting_.end(), [](const auto& each) { return !each->passed; });
  if (passed != waiting_.end()) {
    std::for_each(passed, waiting_.end(), [](const auto& each) { each->over = true; });
    waiting_.erase(passed, waiting_.end());
    unseen_ = dead_ = 0;
  } else if (int* const counted = unseen_ > 0 ? &unseen_ : taken_ > 0 ? &taken_ : dead_ > 0 ? &dead_ : nullptr) {
    --*counted;
  } else if (!waiting_.empty()) {
    waiting_.erase(waiting_.begin());
  }
}

void Forwards::drop_dead() {
  dead_ += static_cast<int>(std::erase_if(waiting_, [](const auto& each) {
    return !each->passed && std::ranges::all_of(each->nodes, [](const auto& node) { return node.expired(); });
  }));
}

}  // namespace trireme::detail
