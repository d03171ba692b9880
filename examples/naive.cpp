// Data-parallel training as one would first write it, beside DistributedDataParallel, to see what that buys: in each
// step rank 0 sends the model and a share of the batch to every worker, takes their gradients one after the other, and
// does the step alone.
//   trireme run -n 4 build/examples/naive --width 512 --depth 4 --batch 128 --steps 20
// All that is sent goes through rank 0: the model and the gradients, P - 1 times each, while everybody else waits.
#include "trireme/communicator.h"
#include "trireme/torch/data_parallel.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <torch/torch.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::int64_t width = 512;
  std::int64_t depth = 4;
  std::int64_t batch = 128;  ///< of all ranks together
  std::int64_t steps = 20;
};

Settings read_settings(const std::vector<std::string>& arguments) {
  Settings settings;
  const std::map<std::string, std::int64_t*> flags = {{"--width", &settings.width},
                                                      {"--depth", &settings.depth},
                                                      {"--batch", &settings.batch},
                                                      {"--steps", &settings.steps}};
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const auto flag = flags.find(arguments[i]);
    if (flag == flags.end()) {
      throw trireme::UsageError("'" + arguments[i] + "' is no flag: there are --width, --depth, --batch and --steps");
    }
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *flag->second);
    if (error != std::errc() || end != value.data() + value.size() || *flag->second < 1) {
      throw trireme::UsageError(arguments[i] + " takes a whole number from 1, not '" + value + "'");
    }
  }
  return settings;
}

torch::nn::Sequential make_model(const Settings& settings) {
  torch::nn::Sequential model;
  for (std::int64_t layer = 0; layer < settings.depth; ++layer) {
    model->push_back(torch::nn::Linear(settings.width, settings.width));
    model->push_back(torch::nn::Tanh());
  }
  return model;
}

std::span<float> elements(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

// It learns to give back what it gets.
torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& share) {
  return (output - share).square().mean();
}

// One rank's part of the gradients.
void compute(torch::nn::Sequential& model, const torch::Tensor& share) {
  model->zero_grad();
  loss_of(model->forward(share), share).backward();
}

// Rank 0: gives work, does its own share, takes the gradients. Returns the seconds spent on sending and receiving.
double lead(trireme::Communicator& world, torch::nn::Sequential& model, const torch::Tensor& batch) {
  const std::int64_t share = batch.size(0) / world.ranks();
  const auto begin = Clock::now();
  for (int worker = 1; worker < world.ranks(); ++worker) {
    for (const torch::Tensor& parameter : model->parameters()) world.send(elements(parameter), worker);
    world.send(elements(batch.narrow(0, worker * share, share)), worker);
  }
  const auto sent = Clock::now();
  compute(model, batch.narrow(0, 0, share));
  const auto computed = Clock::now();
  for (int worker = 1; worker < world.ranks(); ++worker) {
    for (const torch::Tensor& parameter : model->parameters()) {
      torch::Tensor gradient = torch::empty_like(parameter);
      world.receive(elements(gradient), worker);
      parameter.mutable_grad() += gradient;
    }
  }
  for (const torch::Tensor& parameter : model->parameters()) parameter.mutable_grad() /= world.ranks();
  const std::chrono::duration<double> spent = (sent - begin) + (Clock::now() - computed);
  return spent.count();
}

void follow(trireme::Communicator& world, torch::nn::Sequential& model, const torch::Tensor& share) {
  for (const torch::Tensor& parameter : model->parameters()) world.receive(elements(parameter), 0);
  world.receive(elements(share), 0);
  compute(model, share);
  for (const torch::Tensor& parameter : model->parameters()) world.send(elements(parameter.grad()), 0);
}

// Calls `step`, which gives the seconds that it spent on messages, and prints what all of them took.
void measure(const char* name, trireme::Communicator& world, const Settings& settings,
             const std::function<double()>& step) {
  double communicating = 0;
  Clock::time_point begin;
  for (std::int64_t i = 0; i <= settings.steps; ++i) {
    if (i == 1) begin = Clock::now();  // the first is for warming up
    const double spent = step();
    if (i > 0) communicating += spent;
  }
  const std::chrono::duration<double> all = Clock::now() - begin;
  if (world.rank() != 0) return;
  std::printf("%s: %d ranks, %.1f ms a step, %.0f %% of it waiting for messages\n", name, world.ranks(),
              1e3 * all.count() / static_cast<double>(settings.steps), 100 * communicating / all.count());
}

void train_naively(trireme::Communicator& world, const Settings& settings, torch::nn::Sequential& model,
                   const torch::Tensor& batch) {
  if (world.rank() != 0) {
    const torch::Tensor share = torch::empty({settings.batch / world.ranks(), settings.width});
    for (std::int64_t step = 0; step <= settings.steps; ++step) follow(world, model, share);
    return;
  }
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  measure("naive", world, settings, [&] {
    const double spent = lead(world, model, batch);
    optimizer.step();
    return spent;
  });
}

void train_in_parallel(trireme::Communicator& world, const Settings& settings, torch::nn::Sequential& net,
                       const torch::Tensor& batch) {
  trireme::DistributedDataParallel model(net, world);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const torch::Tensor share = batch.chunk(world.ranks())[world.rank()];
  measure("DistributedDataParallel", world, settings, [&] {
    optimizer.zero_grad();
    loss_of(model(share), share).backward();
    optimizer.step();
    const std::chrono::duration<double> waited = model.times().waiting.end - model.times().waiting.begin;
    return waited.count();
  });
}

// Not a number if a parameter is: a maximum by std::max would pass over it.
double largest_difference(const torch::nn::Sequential& a, const torch::nn::Sequential& b) {
  using torch::nn::utils::parameters_to_vector;
  const torch::NoGradGuard guard;
  return (parameters_to_vector(a->parameters()) - parameters_to_vector(b->parameters())).abs().max().item<double>();
}

void train(trireme::Communicator& world, const Settings& settings) {
  if (settings.batch % world.ranks() != 0) {
    throw trireme::UsageError("a batch of " + std::to_string(settings.batch) + " can't be shared evenly by " +
                              std::to_string(world.ranks()) + " ranks: give --batch a multiple of that");
  }
  const auto make = [&] {
    torch::manual_seed(1);
    return make_model(settings);
  };
  torch::nn::Sequential naive = make(), parallel = make();
  const torch::Tensor batch = torch::rand({settings.batch, settings.width});
  train_naively(world, settings, naive, batch);
  train_in_parallel(world, settings, parallel, batch);
  if (world.rank() == 0) {
    std::printf("largest difference of the two models: %.1e\n", largest_difference(naive, parallel));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2 && std::string(arguments[1]) == "--help") {
    std::puts("usage: trireme run -n P naive [--width N] [--depth N] [--batch N] [--steps N]");
    return 0;
  }
  try {
    const Settings settings = read_settings({arguments + 1, arguments + count});
    trireme::Communicator world = trireme::init();
    torch::set_num_threads(1);
    train(world, settings);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "naive: %s\n", error.what());
    return 1;
  }
}
