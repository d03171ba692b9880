// Ranks that run out of batches, with and without batch norm: still what one process does with the joined batch.
#include "trireme/torch/join.h"

#include "torch/difference.h"
#include "torch/ranks.h"
#include "trireme/torch/data_parallel.h"
#include "trireme/torch/sync_batch_norm.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <torch/torch.h>

namespace trireme::test {
namespace {

using torch::Tensor;

struct NormedImpl : torch::nn::Module {
  NormedImpl() : first(4, 6), norm(6), second(6, 2) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  Tensor forward(const Tensor& x) { return second(torch::tanh(norm(first(x)))); }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
};
TORCH_MODULE(Normed);

struct PlainImpl : torch::nn::Module {
  PlainImpl() : first(4, 6), second(6, 2) {
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward(const Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first, second;
};
TORCH_MODULE(Plain);

/// The same for all who ask.
template <typename Net>
Net make() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  torch::manual_seed(5);
  Net net;
  net->to(torch::kFloat64);
  return net;
}

struct Batch {
  Tensor x, y;
};

/// Of one rank in one step.
Batch make_batch(int rank, int step, int rows) {
  const auto numbers = [&](std::int64_t columns, double scale) {
    return torch::sin(torch::arange(rows * columns, torch::kFloat64) * scale + rank * 10 + step).view({rows, columns});
  };
  return {numbers(4, 0.7), numbers(2, 1.3)};
}

Tensor loss_of(const Tensor& out, const Batch& batch) { return torch::mse_loss(out, batch.y); }

std::vector<Tensor> state_of(torch::nn::Module& net) {
  std::vector<Tensor> all = net.parameters();
  for (const Tensor& buffer : net.buffers()) all.push_back(buffer);
  return all;
}

/// How many rows each rank has in each step: ranks with fewer steps run out.
struct Plan {
  std::vector<std::vector<int>> rows;
  bool weighs = false;
  bool steps = true;  ///< ranks that ran out apply the gradients too
  std::function<DistributedDataParallelOptions()> options = [] { return DistributedDataParallelOptions{}; };
  Way way = Way::inproc;
};

template <typename Net>
void expect_as_alone(const Plan& plan) {
  const int ranks = static_cast<int>(plan.rows.size());
  std::size_t most = 0;
  for (const auto& steps : plan.rows) most = std::max(most, steps.size());
  Net alone = make<Net>();
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::size_t step = 0; step < most; ++step) {
    std::vector<Tensor> xs, ys;
    std::vector<double> scales;
    for (int rank = 0; rank < ranks; ++rank) {
      if (step >= plan.rows[rank].size()) continue;
      const Batch batch = make_batch(rank, static_cast<int>(step), plan.rows[rank][step]);
      xs.push_back(batch.x);
      ys.push_back(batch.y);
    }
    optimizer.zero_grad();
    const Tensor out = alone(torch::cat(xs));
    Tensor loss;
    if (plan.weighs) {
      loss = torch::mse_loss(out, torch::cat(ys));
    } else {
      // The mean of the means.
      std::int64_t at = 0;
      for (const Tensor& y : ys) {
        const Tensor part = torch::mse_loss(out.slice(0, at, at + y.size(0)), y) / static_cast<double>(ys.size());
        loss = loss.defined() ? loss + part : part;
        at += y.size(0);
      }
    }
    loss.backward();
    optimizer.step();
  }
  on_ranks(plan.way, ranks, [&](Communicator& world) {
    Net net = make<Net>();
    convert_sync_batch_norm(net, world);
    DistributedDataParallelOptions options = plan.options();
    options.first_bucket_bytes = 1;
    options.bucket_bytes = 300;
    DistributedDataParallel model(net, world, options);
    torch::optim::SGD own(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Join join(model, plan.steps ? std::function<void()>([&] { own.step(); }) : nullptr);
    const std::vector<int>& rows = plan.rows[world.rank()];
    for (std::size_t step = 0; step < rows.size(); ++step) {
      const Batch batch = make_batch(world.rank(), static_cast<int>(step), rows[step]);
      own.zero_grad();
      const Tensor loss = loss_of(model(batch.x), batch);
      (plan.weighs ? model.weigh(loss, rows[step]) : loss).backward();
      own.step();
    }
    join.finish();
    EXPECT_LE(largest_difference(state_of(*net), state_of(*alone)), 1e-13) << "rank " << world.rank();
    // And as if nothing had happened.
    own.zero_grad();
    const Tensor loss =
        loss_of(model(torch::ones({2, 4}, torch::kFloat64)), {{}, torch::ones({2, 2}, torch::kFloat64)});
    (plan.weighs ? model.weigh(loss, 2) : loss).backward();
  });
}

const std::vector<std::vector<std::vector<int>>> kRows = {
    {{3, 3, 3}},
    {{4, 4, 4}, {4, 4}},
    {{4, 4}, {4}, {4, 4, 4, 4}},
    {{}, {3, 3}, {3}},
    {{3}, {3, 3, 3}, {3, 3}, {}, {3, 3, 3}},
};

const std::vector<std::vector<std::vector<int>>> kUnevenRows = {
    {{4, 2, 3}, {2, 5}},
    {{2, 3}, {5}, {3, 4, 2, 6}},
    {{}, {2, 5}, {3}},
};

TEST(Joining, WithoutBatchNorm) {
  for (const auto& rows : kRows) expect_as_alone<Plain>({.rows = rows});
  for (const auto& rows : kUnevenRows) expect_as_alone<Plain>({.rows = rows});
}

TEST(Joining, WithBatchNorm) {
  for (const auto& rows : kRows) expect_as_alone<Normed>({.rows = rows});
  for (const auto& rows : kUnevenRows) expect_as_alone<Normed>({.rows = rows});
}

TEST(Joining, Weighted) {
  for (const auto& rows : kUnevenRows) {
    expect_as_alone<Plain>({.rows = rows, .weighs = true});
    expect_as_alone<Normed>({.rows = rows, .weighs = true});
  }
}

TEST(Joining, WithoutStepsGetsTheModel) {
  for (const auto& rows : kRows) expect_as_alone<Normed>({.rows = rows, .steps = false});
}

/// What allreduce does, and nothing before all gradients are there.
class AtTheEnd final : public CommunicationHook {
 public:
  void start(GradientBucket& /*bucket*/, Communicator& /*ranks*/) override {}
  void finish(GradientBucket& bucket, Communicator& ranks) override {
    const Tensor& gradients = bucket.gradients;
    ranks.allreduce(std::span(gradients.data_ptr<double>(), gradients.numel()), Op::average);
  }
};

TEST(Joining, WithAllOptions) {
  const std::vector<std::function<DistributedDataParallelOptions()>> all = {
      [] { return DistributedDataParallelOptions{.find_unused_parameters = true}; },
      [] { return DistributedDataParallelOptions{.static_graph = true}; },
      [] { return DistributedDataParallelOptions{.hook = std::make_shared<AtTheEnd>()}; },
      [] { return DistributedDataParallelOptions{.broadcast_buffers = BroadcastBuffers::at_start}; },
  };
  for (const auto& options : all) {
    for (const auto& rows : kUnevenRows) {
      expect_as_alone<Normed>({.rows = rows, .options = options});
      expect_as_alone<Normed>({.rows = rows, .weighs = true, .options = options});
    }
  }
}

TEST(Joining, OverTheNetwork) {
  for (const Way way : {Way::shm, Way::tcp, Way::two_hosts}) {
    for (const auto& rows : kUnevenRows) expect_as_alone<Normed>({.rows = rows, .weighs = true, .way = way});
  }
}

TEST(Joining, WithSparseGradients) {
  on_ranks(3, [](Communicator& world) {
    torch::nn::Embedding net(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    torch::nn::init::ones_(net->weight);
    DistributedDataParallel model(net, world);
    torch::optim::SGD own(net->parameters(), 1.0);
    Join join(model, [&] { own.step(); });
    for (int step = 0; step < world.rank(); ++step) {
      net->zero_grad(true);
      model(torch::tensor({world.rank()})).sum().backward();
      own.step();
    }
    join.finish();
    // Ranks 1 and 2 share the first step; the second is rank 2's alone.
    EXPECT_TRUE(torch::equal(net->weight.select(1, 0), torch::tensor({1.0F, 0.5F, -0.5F, 1.0F})));
  });
}

/// What a rank gathers within no_sync and never reduces does not count. In the last round rank 0 has the batch to
/// gather, but not the one to reduce with.
void expect_gathered_are_dropped(const DistributedDataParallelOptions& options, bool set_to_none, int rounds) {
  const auto gathered = [](int round) { return make_batch(0, 2 * round, 3); };
  const auto reduced = [](int round) { return make_batch(0, 2 * round + 1, 3); };
  Plain alone = make<Plain>();
  torch::optim::SGD optimizer(alone->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int round = 0; round < rounds; ++round) {
    optimizer.zero_grad();
    (loss_of(alone(gathered(round).x), gathered(round)) + loss_of(alone(reduced(round).x), reduced(round))).backward();
    optimizer.step();
  }
  on_ranks(3, [&](Communicator& world) {
    Plain net = make<Plain>();
    DistributedDataParallel model(net, world, options);
    torch::optim::SGD own(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Join join(model, [&] { own.step(); });
    for (int round = 0; round < rounds; ++round) {
      net->zero_grad(set_to_none);
      const bool last = world.rank() == 0 && round + 1 == rounds;
      {
        const auto apart = model.no_sync();
        loss_of(model(gathered(round).x), gathered(round)).backward();
      }
      if (last) break;
      loss_of(model(reduced(round).x), reduced(round)).backward();
      own.step();
    }
    join.finish();
    EXPECT_LE(largest_difference(state_of(*net), state_of(*alone)), 1e-13) << "rank " << world.rank();
  });
}

TEST(Joining, DropsWhatWasGatheredWithoutSync) {
  for (const bool set_to_none : {false, true}) {
    for (const int rounds : {1, 3}) {
      expect_gathered_are_dropped({}, set_to_none, rounds);
      expect_gathered_are_dropped({.find_unused_parameters = true}, set_to_none, rounds);
      expect_gathered_are_dropped({.static_graph = true}, set_to_none, rounds);
    }
  }
}

/// Uses one branch or the other.
struct ForkedImpl : torch::nn::Module {
  ForkedImpl() : left(4, 2), right(4, 2) {
    register_module("left", left);
    register_module("right", right);
  }
  Tensor forward(const Tensor& x, bool goes_left) { return goes_left ? left(x) : right(x); }
  torch::nn::Linear left, right;
};
TORCH_MODULE(Forked);

// A parameter without a gradient is not stepped, and one with a gradient of zeros is: by momentum and weight decay.
// Rank 1 alone never uses the right branch; what rank 0 gathers of it is dropped.
TEST(Joining, StepsOnlyWhatOthersStep) {
  const Batch batch = make_batch(0, 0, 3);
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1);
  constexpr int kSteps = 2;
  Forked alone = make<Forked>();
  torch::optim::SGD optimizer(alone->parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    alone->zero_grad(true);
    (2 * loss_of(alone(batch.x, true), batch)).backward();
    optimizer.step();
  }
  on_ranks(2, [&](Communicator& world) {
    Forked net = make<Forked>();
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    torch::optim::SGD own(net->parameters(), options);
    Join join(model, [&] { own.step(); });
    for (int step = 0; step < kSteps; ++step) {
      net->zero_grad(true);
      {
        const auto apart = model.no_sync();
        loss_of(model(batch.x, world.rank() == 1), batch).backward();
      }
      if (world.rank() == 0) break;
      loss_of(model(batch.x, true), batch).backward();
      own.step();
    }
    join.finish();
    EXPECT_LE(largest_difference(state_of(*net), state_of(*alone)), 1e-15) << "rank " << world.rank();
  });
}

// Ranks use different branches. What one uses is not known as long as it has no batch when others have.
TEST(Joining, LearnsAStaticGraphFromAllRanks) {
  const Batch batch = make_batch(0, 0, 3);
  on_ranks(2, [&](Communicator& world) {
    Forked net = make<Forked>();
    DistributedDataParallel model(net, world, {.static_graph = true});
    for (const int without : {1, 0, -1}) {
      Join join(model, [] {});
      for (int step = 0; step < 2 && world.rank() != without; ++step) {
        net->zero_grad(true);
        model(batch.x, world.rank() == 0).sum().backward();
        const Tensor sum = batch.x.sum(0) / (without < 0 ? 2 : 1);
        for (const int branch : {0, 1}) {
          const Tensor gradient = (branch == 0 ? net->left : net->right)->weight.grad();
          ASSERT_EQ(gradient.defined(), branch != without) << "branch " << branch << " without rank " << without;
          if (gradient.defined()) {
            EXPECT_LE((gradient - sum).abs().max().item<double>(), 1e-15);
          }
        }
      }
      join.finish();
    }
  });
}

/// May use a branch, on either side of the norm.
struct DetourImpl : torch::nn::Module {
  DetourImpl() : in(4, 6), norm(6), branch(6, 6), out(6, 2) {
    register_module("in", in);
    register_module("norm", norm);
    register_module("branch", branch);
    register_module("out", out);
  }
  Tensor forward(const Tensor& x, bool before, bool after) {
    Tensor hidden = in(x);
    if (before) hidden = branch(hidden);
    hidden = norm(hidden);
    if (after) hidden = branch(hidden);
    return out(hidden);
  }
  torch::nn::Linear in;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear branch, out;
};
TORCH_MODULE(Detour);

void detour(Communicator& world, const DistributedDataParallelOptions& options, bool before, bool after) {
  Detour net = make<Detour>();
  convert_sync_batch_norm(net, world);
  DistributedDataParallel model(net, world, options);
  torch::optim::SGD own(net->parameters(), 0.1);
  Join join(model, [&] { own.step(); });
  for (int step = 0; step < (world.rank() == 2 ? 1 : 3); ++step) {
    const Batch batch = make_batch(world.rank(), step, 4);
    own.zero_grad();
    loss_of(model(batch.x, before, after), batch).backward();
    own.step();
  }
  join.finish();
  const Tensor weight = net->in->weight.detach().flatten();
  std::vector<double> largest(weight.data_ptr<double>(), weight.data_ptr<double>() + weight.numel());
  const std::vector<double> mine = largest;
  world.allreduce(largest, Op::max);
  EXPECT_EQ(largest, mine);
}

// Buckets get filled before the norm's backward on one rank, and after it on another.
TEST(Joining, WhereRanksUseDifferentParameters) {
  for (const std::size_t bytes : {1, 140, 1000}) {
    for (const bool is_static : {false, true}) {
      on_ranks(3, [&](Communicator& world) {
        const DistributedDataParallelOptions options = {.first_bucket_bytes = bytes,
                                                        .bucket_bytes = bytes,
                                                        .find_unused_parameters = !is_static,
                                                        .static_graph = is_static};
        detour(world, options, world.rank() == 0, world.rank() == 1);
      });
    }
  }
}

TEST(Joining, WhereRanksDoNotDoTheSameIsNamed) {
  const auto order = outcomes(3, [](Communicator& world) {
    detour(world, {.first_bucket_bytes = 1, .bucket_bytes = 1}, world.rank() == 0, world.rank() != 0);
  });
  expect_all_say(order,
                 {"do not do the same while a Join lives", "the reduction of bucket", "the backward of batch norm 0"});
  const auto weights = outcomes(3, [](Communicator& world) {
    Plain net = make<Plain>();
    DistributedDataParallel model(net, world);
    Join join(model);
    for (int step = 0; step < 2 && world.rank() != 2; ++step) {
      const Batch batch = make_batch(world.rank(), step, 3);
      const Tensor loss = loss_of(model(batch.x), batch);
      (world.rank() == 0 ? model.weigh(loss, 3) : loss).backward();
    }
    join.finish();
  });
  expect_all_say(weights, {"do not do the same while a Join lives", "weigh()"});
}

TEST(Joining, TwiceIsRefused) {
  const auto said = outcomes(3, [](Communicator& world) {
    Plain net = make<Plain>();
    DistributedDataParallel model(net, world);
    Join join(model);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < world.rank(); ++step) {
        const Batch batch = make_batch(world.rank(), step, 3);
        loss_of(model(batch.x), batch).backward();
      }
      join.finish();
    }
  });
  expect_all_say(said, {"a new Join for each epoch"});
  expect_all_say({said[1], said[2]}, {"rank 0"});
}

TEST(Joining, BetweenForwardAndBackwardIsRefused) {
  for (const bool again : {false, true}) {
    const auto said = outcomes(2, [&](Communicator& world) {
      Plain net = make<Plain>();
      DistributedDataParallel model(net, world);
      const Batch batch = make_batch(world.rank(), 0, 3);
      if (again) {
        Join before(model);
        loss_of(model(batch.x), batch).backward();
        before.finish();
      }
      const Tensor loss = loss_of(model(batch.x), batch);
      Join join(model);
      loss.backward();
      join.finish();
    });
    expect_all_say(said, {"Join", "before the forward"});
  }
}

// A step that was skipped, as for a loss that is no number, is not one that Join came between.
TEST(Joining, AfterAForwardWithoutBackward) {
  on_ranks(2, [](Communicator& world) {
    Plain net = make<Plain>();
    DistributedDataParallel model(net, world);
    const Batch batch = make_batch(0, 0, 3);
    model(batch.x);
    Join join(model);
    for (int step = 0; step < world.rank(); ++step) loss_of(model(batch.x), batch).backward();
    join.finish();
    Plain alone = make<Plain>();
    loss_of(alone(batch.x), batch).backward();
    EXPECT_LE((net->first->weight.grad() - alone->first->weight.grad()).abs().max().item<double>(), 1e-15);
  });
}

TEST(Joining, NobodyHasABatch) { expect_as_alone<Plain>({.rows = {{}, {}, {}}}); }

TEST(Joining, WhoThrowsIsNamed) {
  for (const Way way : kWays) {
    const auto said = outcomes(way, 3, [](Communicator& world) {
      Plain net = make<Plain>();
      DistributedDataParallel model(net, world);
      Join join(model);
      if (world.rank() == 1) throw std::runtime_error("a bad batch");
      const Batch batch = make_batch(world.rank(), 0, 3);
      loss_of(model(batch.x), batch).backward();
      join.finish();
    });
    EXPECT_EQ(said[1], "exception: a bad batch");
    expect_all_say({said[0], said[2]}, {"rank 1", "without Join::finish"});
  }
}

// What it has under way then says nothing of it, however long others take.
TEST(Joining, WhoThrowsAfterAForwardIsNamed) {
  const auto said = outcomes(3, [](Communicator& world) {
    Plain net = make<Plain>();
    DistributedDataParallel model(net, world);
    Join join(model);
    if (world.rank() != 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const Batch batch = make_batch(world.rank(), 0, 3);
    const torch::Tensor out = model(batch.x);
    if (world.rank() == 1) throw std::runtime_error("a bad batch");
    loss_of(out, batch).backward();
    join.finish();
  });
  EXPECT_EQ(said[1], "exception: a bad batch");
  expect_all_say({said[0], said[2]}, {"rank 1", "without Join::finish"});
}

}  // namespace
}  // namespace trireme::test
