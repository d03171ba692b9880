// Forwards whose backward has not come: how a backward that is not of any of them is noticed, and what one may use.
//
// A forward counts until backward has gone through one of its results. Some are only counted: those with results that
// can't be seen; those of which a gradient was taken before the next, since that gradient may be part of a loss; and
// those whose results are gone, as of one that only evaluated, or whose loss the module keeps: until the next backward
// of another.
#pragma once

#include <ATen/core/Tensor.h>
#include <functional>
#include <memory>
#include <torch/csrc/autograd/function.h>
#include <vector>

namespace trireme::detail {

class Forwards {
 public:
  /// `comes` is called when backward comes to the results of a forward, in the graph that they are used in.
  explicit Forwards(std::function<void()> comes);
  ~Forwards() { *comes_ = nullptr; }
  Forwards(const Forwards&) = delete;
  Forwards& operator=(const Forwards&) = delete;

  /// A forward gave these. `all_known`: it gave no others. `used`: the parameters that they were computed from, if that
  /// is asked for.
  void add(const std::vector<at::Tensor*>& results, bool all_known, std::vector<bool> used);

  /// Whether a backward can be of one of them.
  bool any();

  /// Whether what comes back now went through results that have had their backward.
  bool again() const { return *again_; }

  /// The parameters that any of them used, by what add() was told: all that a backward now may have gradients of.
  std::vector<bool> used() const;

  void backward_ended();

 private:
  struct Forward {
    std::vector<bool> used;
    std::vector<std::weak_ptr<torch::autograd::Node>> nodes;  ///< that backward of its results goes through
    bool passed = false;
    bool over = false;
  };

  void drop_dead();
  template <typename Which>
  int only_count(Which which);

  std::vector<std::shared_ptr<Forward>> waiting_;
  int unseen_ = 0;  ///< those without a result that can be seen
  int taken_ = 0;   ///< those that a gradient was taken of
  int dead_ = 0;    ///< those of whose results nothing is left
  std::vector<bool> used_by_counted_;
  std::shared_ptr<bool> again_ = std::make_shared<bool>(false);
  std::shared_ptr<std::function<void()>> comes_;  ///< results may outlive this
};

}  // namespace trireme::detail
