#include "torch/forwards.h"

#include "torch/graph.h"

#include <algorithm>
#include <utility>

namespace trireme::detail {
namespace {

void unite(std::vector<bool>& all, const std::vector<bool>& more) {
  all.resize(std::max(all.size(), more.size()));
  for (std::size_t i = 0; i < more.size(); ++i) all[i] = all[i] || more[i];
}

}  // namespace

Forwards::Forwards(std::function<void()> comes) : comes_(std::make_shared<std::function<void()>>(std::move(comes))) {}

void Forwards::add(const std::vector<at::Tensor*>& results, bool all_known, std::vector<bool> used) {
  drop_dead();
  taken_ += only_count([](const Forward& each) { return each.passed; });
  *again_ = false;
  const auto forward = std::make_shared<Forward>();
  forward->used = std::move(used);
  for (const at::Tensor* result : results) {
    if (!result->defined() || !result->requires_grad()) continue;
    // A view that is changed in place gets another node, and what it is a view of keeps its own behind the new one.
    const at::Tensor whole = result->is_view() ? at::Tensor(result->_base()) : *result;
    const std::shared_ptr<torch::autograd::Node>& node = whole.grad_fn();
    if (!node) continue;
    node->add_pre_hook(std::make_unique<PreHook>([comes = comes_] {
      if (*comes) (*comes)();
    }));
    node->add_post_hook(std::make_unique<PostHook>([forward, again = again_] {
      forward->passed = true;
      if (forward->over) *again = true;
    }));
    forward->nodes.push_back(node);
  }
  if (!all_known || forward->nodes.empty()) {
    ++unseen_;
    unite(used_by_counted_, forward->used);
  } else {
    waiting_.push_back(forward);
  }
}

bool Forwards::any() {
  drop_dead();
  return !waiting_.empty() || unseen_ > 0 || taken_ > 0 || (dead_ > 0 && !*again_);
}

std::vector<bool> Forwards::used() const {
  std::vector<bool> all = used_by_counted_;
  for (const auto& each : waiting_) unite(all, each->used);
  return all;
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
  if (unseen_ + taken_ + dead_ == 0) used_by_counted_.clear();
}

// Takes these out of those that wait, and gives their number.
template <typename Which>
int Forwards::only_count(Which which) {
  return static_cast<int>(std::erase_if(waiting_, [&](const auto& each) {
    if (!which(*each)) return false;
    unite(used_by_counted_, each->used);
    return true;
  }));
}

void Forwards::drop_dead() {
  dead_ += only_count([](const Forward& each) {
    return !each.passed && std::ranges::all_of(each.nodes, [](const auto& node) { return node.expired(); });
  });
}

}  // namespace trireme::detail
