#include "training.h"

#include "batches.h"
#include "progress.h"
#include "trireme/torch/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <torch/torch.h>

namespace makemore {
namespace {

using Clock = trireme::StepTimes::Clock;

constexpr std::size_t kSteps = 20;  // that are recorded: the last ones, when all is warm

std::int64_t nanoseconds(Clock::time_point time) { return time.time_since_epoch() / std::chrono::nanoseconds(1); }

Span span(Clock::time_point begin, Clock::time_point end) { return {nanoseconds(begin), nanoseconds(end)}; }

trireme::DistributedDataParallelOptions parallel_options(const Options& options) {
  trireme::DistributedDataParallelOptions parallel;
  // All ranks have the same statistics of the joined batch: nothing is to be broadcast before each forward.
  parallel.broadcast_buffers = trireme::BroadcastBuffers::at_start;
  if (options.bucket_bytes > 0) parallel.first_bucket_bytes = parallel.bucket_bytes = options.bucket_bytes;
  return parallel;
}

class Trainer {
 public:
  Trainer(trireme::Communicator& world, Model& model, const Samples& samples, const Options& options)
      : world_(world),
        model_(model, world, parallel_options(options)),
        optimizer_(model->parameters(), options.rate),
        batches_(samples, options.batch, options.seed, world.rank(), world.ranks()),
        steps_(options.steps),
        rate_(options.rate),
        joined_(options.batch * world.ranks()),
        progress_(options.quiet || world.rank() != 0, steps_, joined_) {}

  Training run() {
    const std::int64_t show_every = std::max<std::int64_t>(1, steps_ / 100);
    const auto begin = Clock::now();
    double waited = 0;
    for (std::int64_t step = 1; step <= steps_; ++step) {
      waited += this->step(step);
      if (step % show_every != 0 && step != steps_) continue;
      waited += average_losses();
      progress_.show(step, result_.losses.back(), waited);
    }
    const double seconds = span(begin, Clock::now()).seconds();
    result_.samples_per_second = static_cast<double>(steps_ * joined_) / seconds;
    result_.waited = waited / seconds;
    for (const auto& bucket : model_.times().buckets) result_.buckets.push_back(bucket.bytes);
    return std::move(result_);
  }

 private:
  // Returns the seconds of communication that nothing hid.
  double step(std::int64_t number) {
    const auto begin = Clock::now();
    const Samples batch = batches_.next();
    const auto forward = Clock::now();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(model_(batch.contexts), batch.targets);
    const auto backward = Clock::now();
    loss.backward();
    const auto update = Clock::now();
    optimizer_.step();
    optimizer_.zero_grad();
    const auto end = Clock::now();

    result_.losses.push_back(loss.item<double>());
    const trireme::StepTimes& times = model_.times();
    StepSpans spans{.step = number,
                    .batch = span(begin, forward),
                    .forward = span(forward, backward),
                    .backward = span(backward, times.waiting.begin),
                    .waiting = span(times.waiting.begin, times.waiting.end),
                    .optimiser = span(update, end)};
    for (const auto& bucket : times.buckets) {
      spans.buckets.push_back({bucket.bytes, span(bucket.reduction.begin, bucket.reduction.end)});
    }
    for (const auto& [begun, ended] : times.exchanges) spans.exchanges.push_back(span(begun, ended));
    const double waited = spans.communicated();
    if (number + static_cast<std::int64_t>(kSteps) > steps_) result_.spans.push_back(std::move(spans));
    return waited;
  }

  // Those that are this rank's own become the mean of all ranks'. Once in a while for many: in every step it would be
  // one more message to wait for. All ranks have the same ones then, and stop alike at one that is not finite. Returns
  // the seconds that it took.
  double average_losses() {
    const auto begin = Clock::now();
    world_.allreduce(std::span(result_.losses).subspan(averaged_), trireme::Op::average);
    const double seconds = span(begin, Clock::now()).seconds();
    for (; averaged_ < result_.losses.size(); ++averaged_) {
      if (!std::isfinite(result_.losses[averaged_])) throw not_finite("in step", averaged_ + 1, rate_);
    }
    return seconds;
  }

  trireme::Communicator& world_;
  trireme::DistributedDataParallel<Model> model_;
  torch::optim::SGD optimizer_;
  Batches batches_;
  std::int64_t steps_;
  double rate_;
  std::int64_t joined_;
  Progress progress_;
  Training result_ = {};
  std::size_t averaged_ = 0;
};

}  // namespace

std::runtime_error not_finite(const char* when, std::size_t step, double rate) {
  return std::runtime_error(
      fmt::format("{} {} the loss is not finite: give a smaller --rate than {:g}", when, step, rate));
}

Training train(trireme::Communicator& world, Model& model, const Samples& samples, const Options& options) {
  return Trainer(world, model, samples, options).run();
}

}  // namespace makemore
