#include "torch/graph.h"

#include <deque>
#include <torch/csrc/autograd/variable.h>
#include <unordered_set>

namespace trireme::detail {
namespace {

using torch::autograd::Node;

// Calls `look` with each node that results were computed by, the nearest first, until it says that it has seen enough.
template <typename Look>
void walk(const std::vector<at::Tensor*>& results, Look look) {
  std::unordered_set<const Node*> seen;
  std::deque<const Node*> next;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) next.push_back(node);
  };
  for (const at::Tensor* result : results) {
    if (result->defined() && result->requires_grad())
      visit(torch::autograd::impl::gradient_edge(*result).function.get());
  }
  while (!next.empty()) {
    const Node* node = next.front();
    next.pop_front();
    if (look(node)) return;
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
}

}  // namespace

void mark_used(const std::vector<at::Tensor*>& results, const ParameterNumbers& number, std::vector<bool>& used) {
  walk(results, [&](const Node* node) {
    if (const auto found = number.find(node); found != number.end()) used[found->second] = true;
    return false;
  });
}

bool use_any(const std::vector<at::Tensor*>& results, const ParameterNumbers& number) {
  bool found = false;
  walk(results, [&](const Node* node) {
    found = number.contains(node);
    return found;
  });
  return found;
}

}  // namespace trireme::detail
