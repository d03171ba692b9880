#include "torch/reducer.h"

#include "torch/give_up.h"
#include "torch/tensors.h"

#include <fmt/format.h>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <numeric>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <utility>

namespace trireme::detail {
namespace {

using Clock = StepTimes::Clock;

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && !a.is_sparse() && a.data_ptr() == b.data_ptr() && a.strides() == b.strides();
}

}  // namespace

Reducer::Reducer(std::vector<ReducedParameter> parameters, Communicator ranks, DistributedDataParallelOptions options)
    : ranks_(std::move(ranks)), options_(std::move(options)) {
  for (ReducedParameter& parameter : parameters) {
    tensors_.push_back(parameter.tensor);
    const at::Tensor when_wrapped = at::empty_like(parameter.tensor, at::TensorOptions(at::kMeta));
    parameters_.push_back({std::move(parameter), when_wrapped, {}, 0, -1, false, false});
  }
  has_gradient_.assign(parameters_.size(), true);
  std::vector<int> order;
  for (int i = static_cast<int>(parameters_.size()) - 1; i >= 0; --i) {
    if (!parameters_[i].sparse) order.push_back(i);
  }
  build(order);
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) add_hook(i);
  anchor_ = at::zeros({}, at::kDouble).requires_grad_();
  anchor_accumulator_ = torch::autograd::impl::grad_accumulator(anchor_);
  anchor_hook_ = anchor_accumulator_->add_post_hook(std::make_unique<PostHook>([this] {
    anchor_.mutable_grad().reset();
    if (sync_ && !in_backward_) begin_backward("a result that depends on no parameter");
  }));
}

Reducer::~Reducer() {
  anchor_accumulator_->del_post_hook(anchor_hook_);
  for (Parameter& parameter : parameters_) parameter.accumulator->del_post_hook(parameter.hook);
}

void Reducer::add_hook(int number) {
  Parameter& parameter = parameters_[number];
  parameter.accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
  parameter.hook = parameter.accumulator->add_post_hook(std::make_unique<PostHook>([this, number] { came(number); }));
  number_of_[parameter.accumulator.get()] = number;
}

// torch::load gives a parameter another accumulator, and so does another dtype.
void Reducer::follow(int number) {
  Parameter& parameter = parameters_[number];
  const at::Tensor &now = parameter.tensor, &before = parameter.when_wrapped;
  if (!now.device().is_cpu()) {
    give_up(ranks_,
            fmt::format("parameter {} of {} was moved to device {}, which is not supported yet: move the module "
                        "back to the CPU",
                        parameter.name, describe(now), now.device().str()));
  }
  if (now.scalar_type() != before.scalar_type() || now.sizes() != before.sizes()) {
    give_up(ranks_,
            fmt::format("parameter {} is {}, but was {} when it was wrapped: its gradients would not be averaged. "
                        "Wrap the module again",
                        parameter.name, describe(now), describe(before)));
  }
  if (!now.requires_grad() || torch::autograd::impl::grad_accumulator(now) == parameter.accumulator) return;
  parameter.accumulator->del_post_hook(parameter.hook);
  number_of_.erase(parameter.accumulator.get());
  add_hook(number);
}

// Gradients that are there already move to their new places.
void Reducer::build(std::span<const int> order) {
  const auto assigned = assign_buckets(tensors_, order, options_.first_bucket_bytes, options_.bucket_bytes);
  BucketMemory memory(ranks_, tensors_, assigned);
  const at::NoGradGuard no_grad;
  for (const int i : order) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!gradient.defined()) continue;
    memory.gradients()[i].copy_(gradient);
    gradient = memory.gradients()[i];
  }
  memory_ = std::move(memory);
  buckets_.clear();
  shown_.clear();
  for (const auto& members : assigned) {
    const int index = static_cast<int>(buckets_.size());
    Bucket& bucket = buckets_.emplace_back();
    bucket.parameters = members;
    GradientBucket& shown = shown_.emplace_back();
    shown.index = index;
    shown.gradients = memory_.flat()[index];
    for (const int i : members) {
      parameters_[i].bucket = index;
      shown.names.push_back(parameters_[i].name);
      shown.per_parameter.push_back(memory_.gradients()[i]);
    }
  }
}

void Reducer::before_forward() {
  if (in_backward_) {
    in_backward_ = false;
    give_up(ranks_, "the last backward ended before all gradients had come, as when something throws in it");
  }
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) follow(i);
  exchanges_->clear();
  times_.forward.begin = Clock::now();
}

void Reducer::after_forward(const std::vector<at::Tensor*>& results, bool all_known) {
  times_.forward.end = Clock::now();
  if (!at::GradMode::is_enabled()) return;
  if (notices_) {
    announce(Announced::at_work);
    count_at_work(1);
  }
  if (!sync_) return;
  if (finds_unused() && !all_known) {
    give_up(ranks_,
            "find_unused_parameters can't see all tensors in what forward returns; let it return tensors, or tuples, "
            "vectors, maps or optionals of them");
  }
  std::vector<bool> used;
  if (finds_unused()) {
    used.resize(parameters_.size());
    mark_used(results, number_of_, used);
    if (std::ranges::count(used, true) == 0) tie_to_anchor(results);
  } else if (all_known && !all_frozen() && !use_any(results, number_of_)) {
    tie_to_anchor(results);
  }
  forwards_.add(results, all_known, std::move(used));
}

// As a critic is while what it looks at is trained: then no backward is its own.
bool Reducer::all_frozen() const {
  return std::ranges::none_of(tensors_, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

// No gradient of a parameter will say that backward has come, and the other ranks wait for this one, or would take its
// next step for this one: results depend on something else of this object.
void Reducer::tie_to_anchor(const std::vector<at::Tensor*>& results) {
  for (at::Tensor* result : results) {
    if (!result->defined() || result->layout() != at::kStrided) continue;
    if (result->is_floating_point() || result->is_complex()) *result = *result + anchor_.to(result->scalar_type());
  }
}

void Reducer::use(std::shared_ptr<Notices> notices) {
  notices_ = std::move(notices);
  at_work_ = nullptr;
}

// The loss of a rank counts by its part of all samples. It is scaled before anything goes back from it: later would be
// too late for batch norm, which mixes the gradients of all ranks on the way.
at::Tensor Reducer::weigh(const at::Tensor& loss, double samples) {
  if (!(samples >= 0) || std::isinf(samples)) give_up(ranks_, fmt::format("a rank can't have {} samples", samples));
  announce(Announced::weights);
  std::array<double, 2> sums = {samples, 1};
  {
    const NotedExchange noted(exchanges_);
    ranks_.allreduce(sums);
  }
  if (!(sums[0] > 0)) give_up(ranks_, "no rank has any samples in this step: all weights are 0");
  return loss * (samples * sums[1] / sums[0]);
}

// Those that have run out of batches do not.
double Reducer::ranks_that_count() { return notices_ ? at_work_->ranks() : ranks_.ranks(); }

void Reducer::count_at_work(double own) {
  at_work_ = std::make_unique<AtWork>();
  at_work_->count[0] = own;
  at_work_->handle = ranks_.allreduce_async(at_work_->count);
}

void Reducer::announce(Announced what, std::int64_t which) {
  if (notices_) notices_->announce(what, which);
}

void Reducer::came(int number) {
  if (!sync_) return;
  if (!in_backward_) begin_backward(fmt::format("parameter {}", parameters_[number].name));
  Parameter& parameter = parameters_[number];
  if (parameter.ready) {
    give_up(ranks_, fmt::format("parameter {} got a gradient, but was {}", parameter.name,
                                parameter.used          ? "ready: its gradient came twice in one backward"
                                : options_.static_graph ? "without one in the first backward: the graph is not static"
                                                        : "found not to be used in the forward before"));
  }
  parameter.used = true;
  if (learns_order() && !parameter.sparse) arrivals_.push_back(number);
  const at::Tensor& gradient = parameter.tensor.grad();
  // There may be none: what the parameter was used in gave nothing back.
  if (gradient.defined() && parameter.sparse != gradient.is_sparse()) {
    give_up(ranks_, parameter.sparse
                        ? fmt::format("parameter {} should have sparse gradients, but got a dense one", parameter.name)
                        : fmt::format("parameter {} got a sparse gradient; name it in sparse_parameters of "
                                      "DistributedDataParallelOptions",
                                      parameter.name));
  }
  mark_ready(number);
  if (!waits_for_end()) launch_filled();
}

void Reducer::begin_backward(const std::string& first) {
  if (!forwards_.any()) {
    give_up(ranks_,
            forwards_.again()
                ? "a second backward of the same forward (retain_graph), which is not supported: add the losses "
                  "up, and call backward once"
                : fmt::format("backward without forward: a gradient of {} came, but the model was not called through "
                              "DistributedDataParallel, outside no_sync, since the last backward",
                              first));
  }
  if (notices_ && !at_work_) {
    give_up(ranks_, "a Join was made between this backward and its forward: make it before the forward");
  }
  in_backward_ = true;
  launched_ = 0;
  times_.backward.begin = Clock::now();
  for (Parameter& parameter : parameters_) parameter.ready = parameter.used = false;
  for (Bucket& bucket : buckets_) bucket.missing = static_cast<int>(bucket.parameters.size());
  await_end();
  std::vector<bool> expected;  // empty: all
  if (options_.static_graph) {
    expected = in_graph_;
  } else if (finds_unused()) {
    expected = forwards_.used();
  }
  for (int i = 0; i < static_cast<int>(expected.size()); ++i) {
    if (!expected[i]) mark_ready(i);
  }
}

// The end of the graph that the results are used in, where that is known when the first gradient comes: it may come in
// one within it, as of a block that is computed again. A gradient that is only taken ends without any.
void Reducer::await_end() {
  if (!end_awaited_.expired()) return;
  const auto token = std::make_shared<bool>();
  end_awaited_ = token;
  torch::autograd::Engine::get_default_engine().queue_callback([this, token] {
    end_awaited_.reset();
    if (in_backward_) end_backward();
  });
}

// The gradient goes to its place in the bucket, if it is not there yet.
void Reducer::mark_ready(int number) {
  Parameter& parameter = parameters_[number];
  parameter.ready = true;
  if (parameter.sparse) return;
  const at::Tensor& place = memory_.gradients()[number];
  at::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) {
    place.zero_();
  } else if (!same_memory(gradient, place)) {
    const at::NoGradGuard no_grad;
    place.copy_(gradient);
    gradient = place;
  }
  --buckets_[parameter.bucket].missing;
}

// Which parameters are used may change, and with them the order: then the guess is as good as any.
bool Reducer::learns_order() const { return !rebuilt_ && !finds_unused(); }

// Ranks that run out of batches hear of buckets and of batch norms in one order, so it has to be the same on all that
// have some. Where ranks may use different parameters it is only if buckets come after all batch norms.
bool Reducer::waits_for_end() const {
  return learns_order() || (notices_ && (options_.find_unused_parameters || options_.static_graph));
}

void Reducer::launch_filled() {
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) launch(static_cast<int>(launched_++));
}

// Halves that are added up first may be too large for their type where their mean is not.
bool Reducer::adds_parts(int index) const {
  return notices_ || (!options_.hook && shown_[index].gradients.scalar_type() == at::kHalf);
}

void Reducer::launch(int index) {
  buckets_[index].filled = Clock::now();
  if (adds_parts(index)) shown_[index].gradients.div_(ranks_that_count());
  announce(Announced::bucket, index);
  start_reduction(index);
}

// What it throws is heard of on all ranks, or they would wait for this one.
void Reducer::call_hook(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    ranks_.abort(fmt::format("its communication hook threw: {}", error.what()));
    throw;
  }
}

void Reducer::start_reduction(int index) {
  const at::Tensor& gradients = shown_[index].gradients;
  if (options_.hook) {
    // A hook gives the mean of all, and these are parts of a sum.
    if (notices_) gradients.mul_(ranks_.ranks());
    call_hook([&] { options_.hook->start(shown_[index], ranks_); });
  } else {
    buckets_[index].handle = ranks_.allreduce_async(buffer_of(gradients), adds_parts(index) ? Op::sum : Op::average);
  }
}

void Reducer::finish_reductions() {
  times_.buckets.clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    if (options_.hook) {
      call_hook([&] { options_.hook->finish(shown_[i], ranks_); });
    } else {
      bucket.handle.wait();
    }
    times_.buckets.push_back({.bytes = bytes_of_tensor(shown_[i].gradients).elements,
                              .reduction = {bucket.filled, options_.hook ? Clock::now() : bucket.handle.ended()}});
  }
}

void Reducer::end_backward() {
  times_.waiting.begin = Clock::now();
  check_all_came();
  if (learns_order()) rebuild();
  launch_filled();
  announce(Announced::reduced);
  finish_reductions();
  std::vector<std::uint8_t> mine;
  for (const at::Tensor& tensor : tensors_) mine.push_back(tensor.grad().defined() ? 1 : 0);
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    if (!parameters_[i].sparse) continue;
    announce(Announced::sparse, i);
    reduce_sparse(i, parameters_[i].tensor.grad());
  }
  if (options_.static_graph ? !graph_known_ : options_.find_unused_parameters) {
    announce(Announced::used);
    find_gradients_anywhere(std::move(mine), /*at_work=*/true);
  }
  give_gradients();
  in_backward_ = false;
  forwards_.backward_ended();
  times_.exchanges = std::exchange(*exchanges_, {});
  times_.waiting.end = times_.backward.end = Clock::now();
  announce(Announced::step);
}

void Reducer::check_all_came() {
  const bool learns_graph = options_.static_graph && in_graph_.empty();
  if (learns_graph) {
    for (const Parameter& parameter : parameters_) in_graph_.push_back(parameter.used);
  }
  // The loss need not use all that forward returned.
  if (learns_graph || finds_unused()) {
    for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
      if (!parameters_[i].ready) mark_ready(i);
    }
    return;
  }
  if (std::ranges::all_of(parameters_, &Parameter::ready)) return;
  in_backward_ = false;
  give_up(ranks_,
          fmt::format("{} got no gradient in this backward{}", names_of_missing(),
                      options_.static_graph
                          ? ", but did in the first: the graph is not static. Set find_unused_parameters instead"
                          : ". If the loss does not depend on all parameters in every step, set "
                            "find_unused_parameters (or static_graph, if it is the same ones always)"));
}

std::string Reducer::names_of_missing() const {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.ready) names.push_back(parameter.name);
  }
  const std::size_t others = names.size() > kMost ? names.size() - kMost : 0;
  names.resize(names.size() - others);
  return fmt::format("parameter{} {}{}", names.size() > 1 ? "s" : "", fmt::join(names, ", "),
                     others > 0 ? fmt::format(" and {} others", others) : "");
}

// Everybody gets the indices and values of all, and adds them up.
void Reducer::reduce_sparse(int number, at::Tensor own) {
  const at::NoGradGuard no_grad;
  const at::Tensor& like = tensors_[number];
  if (!own.defined()) {
    std::vector<std::int64_t> no_rows = like.sizes().vec();
    no_rows[0] = 0;
    own = at::sparse_coo_tensor(at::empty({1, 0}, at::kLong), at::empty(no_rows, like.options()), like.sizes());
  }
  own = (own / ranks_that_count()).coalesce();
  const at::Tensor indices = own.indices().contiguous();
  const at::Tensor values = own.values().contiguous();
  const std::int64_t mine = indices.size(1);
  std::vector<std::int64_t> counts(ranks_.ranks());
  ranks_.allgather(std::span(&mine, 1), counts);
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto gather = [&](const at::Tensor& from, std::vector<std::int64_t> sizes) {
    const std::size_t row = mine > 0
                                ? from.numel() / mine
                                : std::accumulate(sizes.begin() + 1, sizes.end(), std::size_t{1}, std::multiplies<>());
    std::vector<std::size_t> elements;
    elements.reserve(counts.size());
    for (const std::int64_t count : counts) elements.push_back(static_cast<std::size_t>(count) * row);
    sizes[0] = total;
    at::Tensor all = at::empty(sizes, from.options());
    ranks_.allgather(buffer_of(from), buffer_of(all), elements);
    return all;
  };
  // Indices lie one column an entry: rows of them can be put one after the other.
  const at::Tensor all_indices = gather(indices.t().contiguous(), {0, indices.size(0)}).t();
  const at::Tensor all_values = gather(values, values.sizes().vec());
  parameters_[number].tensor.mutable_grad() = at::sparse_coo_tensor(all_indices, all_values, like.sizes()).coalesce();
}

// A parameter that nobody used keeps the gradient that it had, or none. What a rank uses that has run out of batches is
// not known by this, so a static graph is looked at again.
void Reducer::find_gradients_anywhere(std::vector<std::uint8_t> mine, bool at_work) {
  mine.push_back(at_work ? 0 : 1);
  ranks_.allreduce(mine, Op::max);
  for (std::size_t i = 0; i < has_gradient_.size(); ++i) has_gradient_[i] = mine[i] != 0;
  graph_known_ = options_.static_graph && mine.back() == 0;
}

// To the same parameters on all ranks: optimisers leave those without a gradient alone.
void Reducer::give_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!has_gradient_[i]) {
      gradient.reset();
    } else if (!parameters_[i].sparse) {
      gradient = memory_.gradients()[i];
    }
  }
}

void Reducer::rebuild() {
  int root = 0;
  if (notices_) root = notices_->announce_and_wait(Announced::order).last_at_work;
  take_order(root);
}

// The root's order of arrival, on all ranks. What no gradient came for goes last.
void Reducer::take_order(int root) {
  std::vector<std::int32_t> order(arrivals_.begin(), arrivals_.end());
  std::vector<bool> came(parameters_.size());
  for (const int i : arrivals_) came[i] = true;
  for (int i = static_cast<int>(parameters_.size()) - 1; i >= 0; --i) {
    if (!parameters_[i].sparse && !came[i]) order.push_back(i);
  }
  ranks_.broadcast(order, root);
  build(std::vector<int>(order.begin(), order.end()));
  arrivals_.clear();
  rebuilt_ = true;
}

void Reducer::shadow(const Notice& notice, const std::function<void()>& stepped) {
  switch (notice.what) {
    case Announced::at_work: count_at_work(0); break;
    case Announced::weights: {
      std::array<double, 2> nothing = {};
      ranks_.allreduce(nothing);
      break;
    }
    case Announced::bucket:
      shown_[notice.which].gradients.zero_();
      buckets_[notice.which].filled = Clock::now();
      start_reduction(static_cast<int>(notice.which));
      break;
    case Announced::reduced: finish_reductions(); break;
    case Announced::sparse: reduce_sparse(static_cast<int>(notice.which), {}); break;
    case Announced::used:
      find_gradients_anywhere(std::vector<std::uint8_t>(parameters_.size(), 0), /*at_work=*/false);
      break;
    case Announced::order: take_order(notice.last_at_work); break;
    case Announced::step:
      exchanges_->clear();
      give_gradients();
      stepped();
      break;
    default: throw ProtocolError("a rank announced what data-parallel training does not know");
  }
}

}  // namespace trireme::detail
