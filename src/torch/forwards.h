// Forwards whose backward has not come: how a backward that is not of any of them is noticed.
//
// A forward counts until backward has gone through one of its results, or until they are gone: of one that only
// evaluated, or whose step was skipped, nothing is left. Results that can't be seen are only counted.
#pragma once

#include <ATen/core/Tensor.h>
#include <memory>
#include <torch/csrc/autograd/function.h>
#include <vector>

namespace trireme::detail {

class Forwards {
 public:
  /// A forward gave these. `all_known`: it gave no others.
  void add(const std::vector<at::Tensor*>& results, bool all_known);

  /// Whether a backward can be of one of them.
  bool any();

  /// Whether what comes back now went through results that have had their backward.
  bool again() const { return *again_; }

  void backward_ended();

 private:
  struct Forward {
    std::vector<std::weak_ptr<torch::autograd::Node>> nodes;  ///< that backward of its results goes through
    bool passed = false;
    bool over = false;
  };

  void drop_dead();

  std::vector<std::shared_ptr<Forward>> waiting_;
  int unseen_ = 0;  ///< those without a result that can be seen
  std::shared_ptr<bool> again_ = std::make_shared<bool>(false);
};

}  // namespace trireme::detail
