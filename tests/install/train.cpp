// Data-parallel training as the guide shows it (docs/data_parallel.md has the loop from here), held to its promise:
// after it, all ranks have the same model, and it is the one that a single process trains with the joined batches.
#include "trireme/torch/checkpoint.h"
#include "trireme/torch/data_parallel.h"
#include "trireme/torch/gradients.h"
#include "trireme/torch/join.h"
#include "trireme/torch/sampler.h"
#include "trireme/torch/sync_batch_norm.h"

#include <cstdio>
#include <torch/torch.h>

namespace {

struct Waves : torch::data::datasets::Dataset<Waves> {
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor x = (torch::arange(6, torch::kFloat) * static_cast<double>(index + 1)).sin();
    return {x, x.sum().reshape({1})};
  }
  torch::optional<std::size_t> size() const override { return 256; }
};

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
}

torch::nn::Sequential train_alone(std::size_t epochs) {
  torch::nn::Sequential net = make_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto dataset = Waves().map(torch::data::transforms::Stack<>());
  trireme::DistributedSampler sampler(dataset.size().value(), /*rank=*/0, /*ranks=*/1);
  auto loader = torch::data::make_data_loader(dataset, sampler, 64);
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(net->forward(batch.data), batch.target).backward();
      optimizer.step();
    }
  }
  return net;
}

// Not a number if a parameter is: a maximum by std::max would pass over it.
double largest_difference(torch::nn::Sequential& a, torch::nn::Sequential& b) {
  using torch::nn::utils::parameters_to_vector;
  const torch::NoGradGuard guard;
  return (parameters_to_vector(a->parameters()) - parameters_to_vector(b->parameters())).abs().max().item<double>();
}

}  // namespace

int main() try {
  const std::size_t epochs = 3;
  auto dataset = Waves().map(torch::data::transforms::Stack<>());

  // guide: after
  auto world = trireme::init();  // new
  torch::nn::Sequential net = make_net();
  trireme::DistributedDataParallel model(net, world);  // new
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  trireme::DistributedSampler sampler(dataset.size().value(), world);                 // new
  auto loader = torch::data::make_data_loader(dataset, sampler, 64 / world.ranks());  // each rank its share
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);  // new: another order in each epoch
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(model(batch.data), batch.target);  // the model, not the net
      loss.backward();  // all ranks have the mean gradient when it returns
      optimizer.step();
    }
  }
  // end

  torch::nn::Sequential alone = train_alone(epochs);
  const double difference = largest_difference(net, alone);
  std::printf("train: rank %d of %d, largest difference to one process: %.1e\n", world.rank(), world.ranks(),
              difference);
  return difference <= 1e-5 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "train: %s\n", error.what());
  return 1;
}
