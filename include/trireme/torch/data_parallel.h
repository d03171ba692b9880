// Data-parallel training of a LibTorch module, as PyTorch's DistributedDataParallel does it.
//
//   auto world = trireme::init();
//   trireme::DistributedDataParallel model(net, world);
//   ...
//   auto loss = criterion(model(batch.data), batch.target);
//   optimizer.zero_grad();
//   loss.backward();   // when it returns, every rank has the mean of all ranks' gradients
//   optimizer.step();
//
// The module stays what it was: it is saved and loaded as if it had never been wrapped, and its optimiser works on
// net->parameters(). Gradients lie in buckets, in memory that neighbours read in place; a bucket is reduced as soon as
// its gradients are there, while backward goes on. All ranks must wrap modules of the same shapes, and call forward and
// backward alike. One thread at a time may use it.
#pragma once

#include "trireme/communicator.h"

#include <concepts>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <torch/nn/module.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme {

/// Gradients that are reduced together.
struct GradientBucket {
  int index = 0;                                  ///< in the order of reduction
  torch::Tensor gradients;                        ///< all of them, one after the other; of one dtype
  std::vector<std::string> names = {};            ///< of the parameters
  std::vector<torch::Tensor> per_parameter = {};  ///< each one's gradient, in the memory of `gradients`
};

/// What reduces buckets instead of a plain allreduce; compression is made of it. The same on all ranks.
class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;

  /// A bucket is filled. Called within backward, in the order of buckets; what it begins should not be waited for here.
  virtual void start(GradientBucket& bucket, Communicator& ranks) = 0;

  /// Called at the end of backward, in the same order. When it returns, the bucket holds the mean, the same on all
  /// ranks.
  virtual void finish(GradientBucket& bucket, Communicator& ranks) = 0;
};

/// When rank 0's buffers, such as the running means of batch norm, go to all ranks.
enum class BroadcastBuffers : unsigned char { before_forward, at_start, never };

struct DistributedDataParallelOptions {
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  ///< small, so that the first reduction starts early
  std::size_t bucket_bytes = std::size_t{25} << 20;

  /// Looks, after each forward, which parameters its result does not depend on: no gradient of them is waited for.
  bool find_unused_parameters = false;

  /// The same parameters get gradients in every backward; those that get none in the first one never will.
  bool static_graph = false;

  BroadcastBuffers broadcast_buffers = BroadcastBuffers::before_forward;

  /// Parameters with sparse gradients, beside those of torch::nn::Embedding and EmbeddingBag that say so themselves.
  std::vector<std::string> sparse_parameters = {};

  std::shared_ptr<CommunicationHook> hook = nullptr;
};

/// What DistributedDataParallel spent on the last backward.
struct StepTimes {
  using Clock = std::chrono::steady_clock;
  struct Span {
    Clock::time_point begin, end;
  };
  struct Bucket {
    std::size_t bytes = 0;
    Span reduction;  ///< from the bucket's last gradient until it was reduced
  };
  Span forward;   ///< the last one
  Span backward;  ///< from the first gradient to the end, waiting included
  Span waiting;   ///< for reductions, after the last gradient: what was not hidden
  std::vector<Bucket> buckets = {};
  /// What stopped forward and backward until it was done: statistics of synchronised batch norms, the broadcast of
  /// buffers, the sum of weights. From the beginning of the last forward before that backward; those of others before
  /// it, as under no_sync, are not in it.
  std::vector<Span> exchanges = {};
};

namespace detail {

/// All but the module's type.
class DataParallel {
 public:
  DataParallel(torch::nn::Module& module, Communicator world, const DistributedDataParallelOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  void before_forward();
  void after_forward(const std::vector<torch::Tensor*>& results, bool all_known);
  void set_sync(bool sync);
  bool syncs() const;
  torch::Tensor weigh(const torch::Tensor& loss, double samples);
  const StepTimes& times() const;
  std::vector<GradientBucket> buckets() const;

  class Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// The tensors in what forward returns. False: there may be more that can't be found.
inline bool collect(torch::Tensor& tensor, std::vector<torch::Tensor*>& found) {
  found.push_back(&tensor);
  return true;
}
template <typename T>
bool collect(T& value, std::vector<torch::Tensor*>& found);
template <typename A, typename B>
bool collect(std::pair<A, B>& values, std::vector<torch::Tensor*>& found);
template <typename... Ts>
bool collect(std::tuple<Ts...>& values, std::vector<torch::Tensor*>& found) {
  return std::apply([&](Ts&... each) { return (true & ... & collect(each, found)); }, values);
}
template <typename A, typename B>
bool collect(std::pair<A, B>& values, std::vector<torch::Tensor*>& found) {
  const bool first = collect(values.first, found);
  return collect(values.second, found) && first;
}
template <typename T>
bool collect(T& value, std::vector<torch::Tensor*>& found) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_arithmetic_v<Plain> || std::is_enum_v<Plain> || std::is_same_v<Plain, std::string>) {
    return true;
  } else if constexpr (requires { value.has_value(), *value; }) {
    return !value.has_value() || collect(*value, found);  // of the standard library, or LibTorch's own
  } else if constexpr (!std::is_const_v<T> && requires { value.begin(), value.end(); }) {
    bool all = true;
    for (auto&& each : value) all &= collect(each, found);
    return all;
  } else {
    return false;
  }
}

template <typename Net>
concept ModuleClass = std::derived_from<Net, torch::nn::Module>;

}  // namespace detail

/// `Net`: a module holder (what TORCH_MODULE makes, torch::nn::Sequential, ...), a shared_ptr to a module, or a module
/// class itself, of which only a reference is kept.
template <typename Net>
class DistributedDataParallel {
  static constexpr bool kByReference = detail::ModuleClass<Net>;
  using Kept = std::conditional_t<kByReference, Net*, Net>;

 public:
  explicit DistributedDataParallel(Net& net, Communicator world, const DistributedDataParallelOptions& options = {})
      : net_(keep(net)), core_(std::make_unique<detail::DataParallel>(*net_, std::move(world), options)) {}
  explicit DistributedDataParallel(
      Net&& net, Communicator world,
      const DistributedDataParallelOptions& options = {}) requires(!detail::ModuleClass<Net>)
      : net_(std::move(net)), core_(std::make_unique<detail::DataParallel>(*net_, std::move(world), options)) {}

  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    core_->before_forward();
    return seen(net_->forward(std::forward<Arguments>(arguments)...));
  }

  /// The same for a module that has to be told what it returns, as a torch::nn::Sequential that ends with an LSTM.
  template <typename Result, typename... Arguments>
  Result forward_as(Arguments&&... arguments) {
    core_->before_forward();
    return seen(net_->template forward<Result>(std::forward<Arguments>(arguments)...));
  }

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// The wrapped module.
  auto& module() { return *net_; }
  auto* operator->() { return &*net_; }

  /// While it lives, gradients only add up on this rank; the first forward and backward after it reduce the whole.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(detail::DataParallel& core) : core_(&core), before_(core.syncs()) { core.set_sync(false); }
    ~NoSync() { core_->set_sync(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    detail::DataParallel* core_;
    bool before_;
  };
  NoSync no_sync() { return NoSync(*core_); }

  /// The loss of this rank, a mean over so many samples, scaled by its part of all ranks' samples: backward of it gives
  /// the gradients of the joined batch even if ranks have different shares of it. All ranks call it, or none does; a
  /// loss that goes through several models is weighed once, by any of them.
  [[nodiscard]] torch::Tensor weigh(const torch::Tensor& loss, double samples) { return core_->weigh(loss, samples); }

  /// What the last step spent its time on.
  const StepTimes& times() const { return core_->times(); }

  /// How gradients lie in memory now, in the order of reduction.
  std::vector<GradientBucket> buckets() const { return core_->buckets(); }

  detail::DataParallel& core() { return *core_; }

 private:
  static Kept keep(Net& net) {
    if constexpr (kByReference) {
      return &net;
    } else {
      return net;
    }
  }

  /// What forward returned, once it is known whose gradients will come by it.
  template <typename Result>
  Result seen(Result result) {
    std::vector<torch::Tensor*> tensors;
    const bool all = detail::collect(result, tensors);
    core_->after_forward(tensors, all);
    return result;
  }

  Kept net_;
  std::unique_ptr<detail::DataParallel> core_;
};

}  // namespace trireme
