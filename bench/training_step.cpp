// Times training steps of a stack of square linear layers. Run by `trireme run`, or alone:
//   training_step ddp WIDTH DEPTH BATCH STEPS [--trace FILE]
//   training_step alone|in_step WIDTH DEPTH BATCH STEPS
// ddp averages gradients over the ranks; alone only trains, so that several of them are as many independent processes;
// in_step is the same, but a barrier stands where gradients would be averaged.
// Rank 0 prints one line of JSON: median and least milliseconds a step, what of it was spent in waiting for others, and
// in which share of backward a reduction was under way. The trace has all ranks' steps, for Perfetto.
#include "examples/makemore/timeline.h"
#include "trireme/torch/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <torch/torch.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

torch::nn::Sequential make_net(int width, int depth) {
  torch::nn::Sequential net;
  for (int i = 0; i < depth; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

struct Times {
  std::vector<double> step, waiting, forward, optimizer, overlapped;
  std::vector<makemore::StepSpans> spans;
};

makemore::Span span(Clock::time_point begin, Clock::time_point end) {
  constexpr std::chrono::nanoseconds kUnit(1);
  return {begin.time_since_epoch() / kUnit, end.time_since_epoch() / kUnit};
}

/// What data-parallel training did in a step; without it, `parts` is null. Ranks that are kept in step wait for each
/// other where they would average their gradients.
template <typename Model>
Times train(Model& model, torch::nn::Sequential& net, int width, int batch, int steps, const trireme::StepTimes* parts,
            trireme::Communicator* in_step = nullptr) {
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  const torch::Tensor x = torch::randn({batch, width});
  const torch::Tensor y = torch::randn({batch, width});
  constexpr int kWarmUp = 3;
  Times times;
  for (int i = 0; i < steps + kWarmUp; ++i) {
    const auto begin = Clock::now();
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model->forward(x), y);
    const auto computed = Clock::now();
    loss.backward();
    if (in_step != nullptr) in_step->barrier();
    const auto averaged = Clock::now();
    optimizer.step();
    const auto end = Clock::now();
    if (i < kWarmUp) continue;
    times.step.push_back(milliseconds(end - begin));
    times.forward.push_back(milliseconds(computed - begin));
    times.optimizer.push_back(milliseconds(end - averaged));
    if (parts == nullptr) continue;
    const auto& [waits, waited] = parts->waiting;
    times.waiting.push_back(milliseconds(waited - waits));
    times.overlapped.push_back(milliseconds(waits - parts->buckets.front().reduction.begin) /
                               milliseconds(waits - computed));
    makemore::StepSpans& spans = times.spans.emplace_back();
    spans = {.step = i - kWarmUp,
             .batch = span(begin, begin),
             .forward = span(begin, computed),
             .backward = span(computed, waits),
             .waiting = span(waits, waited),
             .optimiser = span(averaged, end)};
    for (const auto& bucket : parts->buckets) {
      spans.buckets.push_back({bucket.bytes, span(bucket.reduction.begin, bucket.reduction.end)});
    }
  }
  return times;
}

void report(const Times& times, torch::nn::Module& net) {
  std::int64_t parameters = 0;
  for (const torch::Tensor& each : net.parameters()) parameters += each.numel();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{{\"median_ms\": {:.3f}, \"least_ms\": {:.3f}, \"waiting_ms\": {:.3f}, \"forward_ms\": {:.3f}, "
      "\"optimizer_ms\": {:.3f}, \"overlapped_share\": {:.3f}, \"parameters\": {}, \"peak_mebibytes\": {:.1f}}}\n",
      median(times.step), *std::min_element(times.step.begin(), times.step.end()), median(times.waiting),
      median(times.forward), median(times.optimizer), median(times.overlapped), parameters,
      static_cast<double>(usage.ru_maxrss) / 1024);
  std::fflush(stdout);
}

void write_trace(trireme::Communicator& world, const Times& times, const std::string& path) {
  const makemore::Timelines timelines = makemore::gather_timelines(world, times.spans);
  if (world.rank() != 0) return;
  std::ofstream file(path);
  file << makemore::chrome_trace(timelines) << std::flush;
  if (!file) throw trireme::UsageError(path + " can't be written");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string kind = argc >= 6 ? argv[1] : "";
  const bool traces = argc == 8 && kind == "ddp" && std::string(argv[6]) == "--trace";
  if ((kind != "ddp" && kind != "alone" && kind != "in_step") || (argc != 6 && !traces)) {
    fmt::print(stderr,
               "usage: training_step ddp WIDTH DEPTH BATCH STEPS [--trace FILE]\n"
               "       training_step alone|in_step WIDTH DEPTH BATCH STEPS\n");
    return 2;
  }
  const int width = std::stoi(argv[2]);
  const int depth = std::stoi(argv[3]);
  const int batch = std::stoi(argv[4]);
  const int steps = std::stoi(argv[5]);
  torch::set_num_threads(1);
  torch::manual_seed(0);
  auto world = trireme::init({.alone = true});
  torch::nn::Sequential net = make_net(width, depth);
  Times times;
  if (kind == "ddp") {
    trireme::DistributedDataParallel model(net, world);
    auto* shared = &model;
    times = train(shared, net, width, batch, steps, &model.times());
  } else {
    world.barrier();  // all at once
    times = train(net, net, width, batch, steps, nullptr, kind == "in_step" ? &world : nullptr);
  }
  if (traces) write_trace(world, times, argv[7]);
  if (world.rank() == 0) report(times, *net);
  world.barrier();
} catch (const std::exception& error) {
  fmt::print(stderr, "training_step: {}\n", error.what());
  return 1;
}
