// Averages gradients over the ranks while backward computes them.
//
// Every parameter's gradient accumulator has a hook here. When all gradients of a bucket are there, and all buckets
// before it have gone, its reduction begins; the engine of the communicator goes on with it while backward computes the
// next ones. A callback at the end of backward waits for what is left. Buckets are reduced in the same order on all
// ranks, whatever the order that their gradients come in.
//
// In the first backward the order of gradients is only learnt: at its end the buckets are built anew in the order in
// which they came on rank 0, and reduced. Were it the guess (the reverse of the parameters') that is reduced then,
// gradients would lie elsewhere, and some would be added up in another order: training that goes on from a checkpoint
// would end with other bits.
#pragma once

#include "torch/buckets.h"
#include "torch/exchanges.h"
#include "torch/forwards.h"
#include "torch/graph.h"
#include "torch/notices.h"
#include "trireme/torch/data_parallel.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/autograd/function.h>
#include <vector>

namespace trireme::detail {

struct ReducedParameter {
  std::string name;
  at::Tensor tensor;
  bool sparse = false;  ///< its gradients are
};

class Reducer {
 public:
  Reducer(std::vector<ReducedParameter> parameters, Communicator ranks, DistributedDataParallelOptions options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  void before_forward();
  void after_forward(const std::vector<at::Tensor*>& results, bool all_known);

  void set_sync(bool sync) { sync_ = sync; }
  bool syncs() const { return sync_; }
  at::Tensor weigh(const at::Tensor& loss, double samples);
  const StepTimes& times() const { return times_; }
  /// Where others note what they stop forward and backward for; the times of the next step tell of it.
  const std::shared_ptr<Exchanges>& exchanges() const { return exchanges_; }
  const std::vector<GradientBucket>& buckets() const { return shown_; }

  /// From now on, other ranks may run out of batches.
  void use(std::shared_ptr<Notices> notices);

  /// This rank has run out of batches, and another announced this: does the same with neutral values. `stepped` is
  /// called when all gradients of a backward are there.
  void shadow(const Notice& notice, const std::function<void()>& stepped);

 private:
  struct Parameter : ReducedParameter {
    at::Tensor when_wrapped;  ///< as it was then, without elements
    std::shared_ptr<torch::autograd::Node> accumulator;
    std::uintptr_t hook = 0;
    int bucket = -1;     ///< -1: sparse
    bool ready = false;  ///< its gradient is there, or none will come
    bool used = false;   ///< a gradient came in this backward
  };

  struct Bucket {
    std::vector<int> parameters;
    int missing = 0;
    Handle handle;
    StepTimes::Clock::time_point filled;
  };

  /// How many ranks have a batch.
  struct AtWork {
    std::array<double, 1> count{};
    Handle handle;
    double ranks() {
      handle.wait();
      return count[0];
    }
  };

  void count_at_work(double own);
  double ranks_that_count();
  void add_hook(int number);
  bool all_frozen() const;
  void tie_to_anchor(const std::vector<at::Tensor*>& results);
  void follow(int number);
  void build(std::span<const int> order);
  void came(int number);
  void begin_backward(const std::string& first);  ///< what a gradient came of
  void await_end();
  void mark_ready(int number);
  bool finds_unused() const { return options_.find_unused_parameters && !options_.static_graph; }
  bool learns_order() const;
  bool waits_for_end() const;
  void launch_filled();
  void launch(int index);
  bool adds_parts(int index) const;
  void end_backward();
  void check_all_came();
  void start_reduction(int index);
  void call_hook(const std::function<void()>& call);
  void finish_reductions();
  void reduce_sparse(int number, at::Tensor own);
  void find_gradients_anywhere(std::vector<std::uint8_t> mine, bool at_work);
  void rebuild();
  void take_order(int root);
  void give_gradients();
  void announce(Announced what, std::int64_t which = 0);
  std::string names_of_missing() const;

  std::vector<Parameter> parameters_;
  std::vector<at::Tensor> tensors_;  ///< of the parameters
  Communicator ranks_;
  DistributedDataParallelOptions options_;
  ParameterNumbers number_of_;
  std::shared_ptr<Notices> notices_;

  BucketMemory memory_;
  std::vector<Bucket> buckets_;
  std::vector<GradientBucket> shown_;
  std::size_t launched_ = 0;

  at::Tensor anchor_;  ///< 0; what results depend on that depend on no parameter
  std::shared_ptr<torch::autograd::Node> anchor_accumulator_;
  std::uintptr_t anchor_hook_ = 0;

  bool sync_ = true;
  bool in_backward_ = false;
  bool rebuilt_ = false;
  std::weak_ptr<bool> end_awaited_;  ///< while a graph runs whose end is that of backward
  Forwards forwards_{[this] { await_end(); }};
  std::vector<int> arrivals_;  ///< parameters in the order of their gradients, in the first backward
  bool graph_known_ = false;
  std::vector<bool> in_graph_;      ///< with a static graph: those that get gradients here
  std::vector<bool> has_gradient_;  ///< on any rank

  std::unique_ptr<AtWork> at_work_;  ///< in the last forward, while ranks may join

  StepTimes times_;
  std::shared_ptr<Exchanges> exchanges_ = std::make_shared<Exchanges>();
};

}  // namespace trireme::detail
