// The code of docs/data_parallel.md: `make docs` copies it there from between "guide: NAME" and "end", and the test
// `docs` fails if the two differ. So what the guide shows compiles, and does what the guide says. The loop that the
// guide starts with is in tests/install/train.cpp, where it is a program of its own.
#include "support/run.h"
#include "torch/ranks.h"
#include "trireme/objects.h"
#include "trireme/torch/checkpoint.h"
#include "trireme/torch/data_parallel.h"
#include "trireme/torch/gradients.h"
#include "trireme/torch/join.h"
#include "trireme/torch/sampler.h"
#include "trireme/torch/sync_batch_norm.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <deque>
#include <mutex>
#include <torch/torch.h>

namespace {

using trireme::test::on_ranks;
using trireme::test::outcomes;

constexpr std::size_t kSamples = 60;

struct Waves : torch::data::datasets::Dataset<Waves> {
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor x = (torch::arange(6, torch::kDouble) * static_cast<double>(index + 1)).sin();
    return {x, x.sum().reshape({1})};
  }
  torch::optional<std::size_t> size() const override { return kSamples; }
};

auto make_dataset() { return Waves().map(torch::data::transforms::Stack<>()); }

/// The same for all ranks, which share one random generator here.
torch::nn::Sequential make_net(bool normed = false) {
  constexpr int kWidth = 96;  // so that gradients are cut into parts, which ranks add up in different orders
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, kWidth));
  if (normed) net->push_back(torch::nn::BatchNorm1d(kWidth));
  net->push_back(torch::nn::Tanh());
  net->push_back(torch::nn::Linear(kWidth, 1));
  net->to(torch::kDouble);
  return net;
}

using Batch = torch::data::Example<>;

/// Rows of the dataset.
Batch rows(std::int64_t begin, std::int64_t end) {
  Waves waves;
  std::vector<Batch> examples;
  for (std::int64_t i = begin; i < end; ++i) examples.push_back(waves.get(static_cast<std::size_t>(i)));
  return torch::data::transforms::Stack<>().apply_batch(std::move(examples));
}

/// One step of a process that has the whole batch.
std::vector<torch::Tensor> after_one_step(const Batch& batch, bool normed = false) {
  torch::nn::Sequential net = make_net(normed);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  torch::mse_loss(net->forward(batch.data), batch.target).backward();
  optimizer.step();
  return net->parameters();
}

void expect_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::allclose(a[i], b[i], 0, 1e-13)) << i;
}

TEST(Guide, Before) {
  auto dataset = make_dataset();
  const std::size_t epochs = 2;
  // guide: before
  torch::nn::Sequential net = make_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(dataset, 64);
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(net->forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
    }
  }
  // end
}

TEST(Guide, SyncBatchNorm) {
  on_ranks(3, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net(/*normed=*/true);
    // guide: norm
    trireme::convert_sync_batch_norm(net, world);  // before wrapping
    trireme::DistributedDataParallel model(net, world, {.broadcast_buffers = trireme::BroadcastBuffers::at_start});
    // end
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Batch batch = rows(4 * world.rank(), 4 * world.rank() + 4);
    torch::mse_loss(model(batch.data), batch.target).backward();
    optimizer.step();
    expect_close(net->parameters(), after_one_step(rows(0, 12), /*normed=*/true));
  });
}

TEST(Guide, NoSync) {
  on_ranks(2, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net();
    trireme::DistributedDataParallel model(net, world);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Batch first = rows(8 * world.rank(), 8 * world.rank() + 4);
    const Batch second = rows(8 * world.rank() + 4, 8 * world.rank() + 8);
    // guide: no_sync
    optimizer.zero_grad();
    {
      const auto alone = model.no_sync();  // forward and backward in here only add up on this rank
      (torch::mse_loss(model(first.data), first.target) / 2).backward();
    }
    (torch::mse_loss(model(second.data), second.target) / 2).backward();  // reduces the sum of both
    optimizer.step();
    // end
    expect_close(net->parameters(), after_one_step(rows(0, 16)));
  });
}

TEST(Guide, Weigh) {
  on_ranks(3, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net();
    trireme::DistributedDataParallel model(net, world);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const std::int64_t begin = world.rank() * (world.rank() + 1) / 2;
    const Batch batch = rows(begin, begin + world.rank() + 1);
    // guide: weigh
    const torch::Tensor loss = torch::mse_loss(model(batch.data), batch.target);
    model.weigh(loss, static_cast<double>(batch.data.size(0))).backward();  // on every rank
    // end
    optimizer.step();
    expect_close(net->parameters(), after_one_step(rows(0, 6)));
  });
}

TEST(Guide, Join) {
  on_ranks(3, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net(/*normed=*/true);
    trireme::convert_sync_batch_norm(net, world);
    trireme::DistributedDataParallel model(net, world);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    std::vector<Batch> batches;
    for (int i = 0; i <= world.rank(); ++i) batches.push_back(rows(4 * i, 4 * i + 4));
    // guide: join
    trireme::Join join(model, [&] { optimizer.step(); });
    for (const auto& batch : batches) {  // another number of them on each rank
      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(model(batch.data), batch.target);
      model.weigh(loss, static_cast<double>(batch.data.size(0))).backward();
      optimizer.step();
    }
    join.finish();  // returns when no rank has batches left
    // end
    const torch::Tensor weight = net->parameters()[0];
    std::vector<double> largest(weight.data_ptr<double>(), weight.data_ptr<double>() + weight.numel());
    const std::vector<double> mine = largest;
    world.allreduce(largest, trireme::Op::max);
    EXPECT_EQ(largest, mine);
  });
}

TEST(Guide, Unused) {
  on_ranks(2, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net();
    // guide: unused
    trireme::DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    // end
    model(torch::ones({2, 6}, torch::kDouble)).sum().backward();
  });
}

TEST(Guide, ClipAndMetrics) {
  on_ranks(2, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net();
    trireme::DistributedDataParallel model(net, world);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const Batch batch = rows(4 * world.rank(), 4 * world.rank() + 4);
    const torch::Tensor loss = torch::mse_loss(model(batch.data), batch.target);
    // guide: clip
    loss.backward();
    const double norm = trireme::clip_grad_norm(net->parameters(), /*max_norm=*/1.0);  // what it was before
    optimizer.step();
    // end
    // guide: metrics
    const auto samples = static_cast<double>(batch.data.size(0));
    const double mean = trireme::average_metric(world, loss.item<double>(), samples);  // all ranks call it
    const std::vector<std::string> hosts =
        trireme::all_gather_object(world, "host of rank " + std::to_string(world.rank()));
    if (world.rank() == 0) std::printf("loss %.4f, gradients' norm %.3f, %zu ranks\n", mean, norm, hosts.size());
    // end
    EXPECT_EQ(hosts.at(1), "host of rank 1");
  });
}

/// All parameters' bits, after a run that goes on from what is in the folder.
std::string train_with_checkpoints(trireme::Communicator& world, const std::string& there) {
  torch::nn::Sequential net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const std::size_t epochs = 2;
  auto dataset = make_dataset();
  trireme::DistributedSampler sampler(dataset.size().value(), world);
  auto loader = torch::data::make_data_loader(dataset, sampler, 5);
  // guide: checkpoint
  trireme::Checkpoint checkpoint(world, there, *net, {.optimizer = &optimizer, .sampler = &sampler});
  std::int64_t step = checkpoint.load_latest().value_or(0);  // nothing there: from the start
  for (const std::string& why : checkpoint.refused()) std::fprintf(stderr, "%s\n", why.c_str());

  trireme::DistributedDataParallel model(net, world);
  for (std::size_t epoch = sampler.epoch(); epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(model(batch.data), batch.target).backward();
      optimizer.step();
      if (++step % 5 == 0) checkpoint.save(step);
    }
  }
  // end
  EXPECT_EQ(step, static_cast<std::int64_t>(epochs * kSamples) / (5 * world.ranks()));
  std::string bits;
  for (const torch::Tensor& each : net->parameters()) {
    bits.append(static_cast<const char*>(each.data_ptr()), each.nbytes());
  }
  return bits;
}

TEST(Guide, CheckpointsGoOnBitForBit) {
  const trireme::TemporaryFolder folder;
  std::array<std::string, 2> bits;  // of the whole run, and of one that does its last steps again
  for (std::string& each : bits) {
    on_ranks(3, [&](trireme::Communicator& world) {
      const std::string mine = train_with_checkpoints(world, folder / "checkpoints");
      if (world.rank() == 0) each = mine;
    });
  }
  EXPECT_TRUE(bits[0] == bits[1]);
}

// guide: hook
/// Sends gradients as bfloat16: half the bytes, and about three digits.
class InHalves final : public trireme::CommunicationHook {
 public:
  void start(trireme::GradientBucket& bucket, trireme::Communicator& ranks) override {
    const torch::Tensor half = bucket.gradients.to(torch::kBFloat16);
    const trireme::Buffer buffer(half.data_ptr(), static_cast<std::size_t>(half.numel()), trireme::Dtype::bf16);
    under_way_.push_back({half, ranks.allreduce_async(buffer, trireme::Op::average)});
  }

  void finish(trireme::GradientBucket& bucket, trireme::Communicator& /*ranks*/) override {
    under_way_.front().handle.wait();
    bucket.gradients.copy_(under_way_.front().half);
    under_way_.pop_front();
  }

 private:
  struct Half {
    torch::Tensor half;
    trireme::Handle handle;
  };
  std::deque<Half> under_way_;
};
// end

TEST(Guide, Hook) {
  on_ranks(2, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net();
    // guide: use_hook
    trireme::DistributedDataParallel model(net, world, {.hook = std::make_shared<InHalves>()});
    // end
    const Batch batch = rows(4 * world.rank(), 4 * world.rank() + 4);
    torch::mse_loss(model(batch.data), batch.target).backward();
    torch::optim::SGD(net->parameters(), 0.1).step();
    const auto exact = after_one_step(rows(0, 8));
    for (std::size_t i = 0; i < exact.size(); ++i) {
      EXPECT_TRUE(torch::allclose(net->parameters()[i], exact[i], 0, 1e-2)) << i;
    }
  });
}

TEST(Guide, Times) {
  on_ranks(2, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net();
    trireme::DistributedDataParallel model(net, world);
    model(torch::ones({2, 6}, torch::kDouble)).sum().backward();
    // guide: times
    const trireme::StepTimes& times = model.times();
    const std::chrono::duration<double, std::milli> waited = times.waiting.end - times.waiting.begin;
    if (world.rank() == 0) std::printf("%zu buckets, %.2f ms not hidden\n", times.buckets.size(), waited.count());
    // end
    EXPECT_EQ(times.buckets.size(), 1U);
  });
}

TEST(Guide, Errors) {
  const auto said = outcomes(2, [](trireme::Communicator& world) {
    torch::nn::Sequential net = make_net();
    // guide: errors
    try {
      trireme::DistributedDataParallel model(net, world);
      model(torch::ones({2, 6}, torch::kDouble)).sum().backward();
    } catch (const trireme::Error& error) {
      std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
      throw;  // this run is over: end it, and start again from the last checkpoint
    }
    // end
  });
  EXPECT_EQ(said, std::vector<std::string>(2));
}

}  // namespace
