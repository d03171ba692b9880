#include "torch/graph.h"

#include <torch/csrc/autograd/variable.h>
#include <unordered_set>

namespace trireme::detail {

void mark_used(const std::vector<at::Tensor*>& results,
               const std::unordered_map<const torch::autograd::Node*, int>& number, std::vector<bool>& used) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> next;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) next.push_back(node);
  };
  for (const at::Tensor* result : results) {
    if (result->defined() && result->requires_grad())
      visit(torch::autograd::impl::gradient_edge(*result).function.get());
  }
  while (!next.empty()) {
    const torch::autograd::Node* node = next.back();
    next.pop_back();
    if (const auto found = number.find(node); found != number.end()) used[found->second] = true;
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
}

}  // namespace trireme::detail
