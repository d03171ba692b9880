// Parameters that a step does not use: found or known, they count as zero; otherwise they are named.
#include "torch/mlp.h"
#include "torch/ranks.h"
#include "trireme/torch/data_parallel.h"
#include "trireme/torch/sync_batch_norm.h"

#include <torch/torch.h>

namespace trireme::test {
namespace {

/// Uses one branch or the other, or both.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() : left(2, 1), right(2, 1), idle(2, 1) {
    register_module("left", left);
    register_module("right", right);
    register_module("idle", idle);
    const torch::NoGradGuard no_grad;
    for (Tensor& each : parameters()) each.fill_(0.5);
  }
  std::pair<Tensor, int> forward(const Tensor& x, bool goes_left) { return {goes_left ? left(x) : right(x), 1}; }
  torch::nn::Linear left, right, idle;
};
TORCH_MODULE(Branches);

TEST(Unused, ParametersAreNamedOnAllRanks) {
  for (const int ranks : {1, 3}) {
    const auto said = outcomes(ranks, [](Communicator& world) {
      Branches net;
      DistributedDataParallel model(net, world);
      model(torch::ones({1, 2}), true).first.sum().backward();
    });
    expect_all_say(said, {"right.weight", "find_unused_parameters"});
  }
}

TEST(Unused, AreFoundAndCountAsZero) {
  on_ranks(3, [](Communicator& world) {
    Branches net;
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      net->zero_grad(step == 2);
      // All go left but one, another one in each step.
      const bool left = world.rank() != step % 3;
      model(torch::full({1, 2}, world.rank() + 1.0), left).first.sum().backward();
      const double all = 1 + 2 + 3;
      const double right = step % 3 + 1;
      EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), (all - right) / 3) << step;
      EXPECT_FLOAT_EQ(net->right->weight.grad()[0][1].item<float>(), right / 3) << step;
      EXPECT_FALSE(net->idle->weight.grad().defined());
    }
  });
}

TEST(Unused, AreKnownAfterTheFirstBackwardOfAStaticGraph) {
  on_ranks(3, [](Communicator& world) {
    Branches net;
    DistributedDataParallel model(net, world, {.static_graph = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      model(torch::full({1, 2}, world.rank() + 1.0), world.rank() != 1).first.sum().backward();
      EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), 4.0F / 3);
      EXPECT_FLOAT_EQ(net->right->weight.grad()[0][0].item<float>(), 2.0F / 3);
      EXPECT_FALSE(net->idle->weight.grad().defined());
    }
  });
}

/// All that it can return, of which a loss may use some.
struct HeadsImpl : torch::nn::Module {
  HeadsImpl() : left(2, 1), right(2, 1) {
    register_module("left", left);
    register_module("right", right);
  }
  std::pair<Tensor, Tensor> forward(const Tensor& x) { return {left(x), right(x)}; }
  torch::nn::Linear left, right;
};
TORCH_MODULE(Heads);

TEST(Unused, MayBeResultsThatTheLossDoesNotUse) {
  on_ranks(3, [](Communicator& world) {
    Heads net;
    DistributedDataParallel model(net, world,
                                  {.first_bucket_bytes = 1, .bucket_bytes = 1, .find_unused_parameters = true});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad(true);
      const auto [left, right] = model(torch::full({1, 2}, world.rank() + 1.0));
      (world.rank() == 1 ? right : left).sum().backward();
      EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), 4.0F / 3);
      EXPECT_FLOAT_EQ(net->right->weight.grad()[0][0].item<float>(), 2.0F / 3);
    }
  });
}

TEST(Unused, AfterAForwardWithoutBackward) {
  on_ranks(2, [](Communicator& world) {
    Branches net;
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    model(torch::ones({1, 2}), false);  // a step that is skipped
    model(torch::full({1, 2}, world.rank() + 1.0), true).first.sum().backward();
    EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), 1.5F);
    EXPECT_FALSE(net->right->weight.grad().defined());
  });
}

// What one rank alone has a gradient of is the same on all after backward, or they would take different steps.
TEST(Unused, ButWithoutSync) {
  on_ranks(2, [](Communicator& world) {
    Branches net;
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    {
      const auto alone = model.no_sync();
      model(torch::ones({1, 2}), world.rank() == 0).first.sum().backward();
    }
    model(torch::ones({1, 2}), true).first.sum().backward();
    ASSERT_TRUE(net->right->weight.grad().defined());
    EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), 1.5F);
    EXPECT_FLOAT_EQ(net->right->weight.grad()[0][0].item<float>(), 0.5F);
    EXPECT_FALSE(net->idle->weight.grad().defined());
  });
}

/// Leaves what it gets as it is, or not.
struct OptionalImpl : torch::nn::Module {
  OptionalImpl() { register_module("inner", inner); }
  Tensor forward(const Tensor& x, bool uses) { return uses ? inner(x) : x.view({1, 2}); }
  torch::nn::Linear inner{2, 2};
};
TORCH_MODULE(Optional);

TEST(Unused, MayBeAllOnOneRank) {
  for (const bool is_static : {false, true}) {
    for (const bool needs_gradient : {false, true}) {
      for (const int without : {0, 1}) {
        on_ranks(3, [&](Communicator& world) {
          Optional net;
          DistributedDataParallel model(net, world, {.find_unused_parameters = !is_static, .static_graph = is_static});
          const bool uses = world.rank() != without;
          for (int step = 1; step <= 4; ++step) {
            net->zero_grad(step == 2);
            const Tensor x = torch::full({1, 2}, static_cast<double>(step)).requires_grad_(needs_gradient);
            Tensor out = model(x, uses || (!is_static && step == 4));
            out.mul_(2);
            out.sum().backward();
            const double mean = !is_static && step == 4 ? 2 * step : 2 * step * 2 / 3.0;
            EXPECT_FLOAT_EQ(net->inner->weight.grad()[0][0].item<float>(), static_cast<float>(mean)) << step;
            if (!uses && needs_gradient && step < 4) {
              EXPECT_EQ(x.grad()[0][0].item<float>(), 2.0F);
            }
          }
        });
      }
    }
  }
}

TEST(Unused, MayBeAllOnAllRanks) {
  on_ranks(2, [](Communicator& world) {
    Optional net;
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    const Tensor x = torch::ones({1, 2}).requires_grad_();
    const Tensor out = model(x, false);
    const Tensor slope = torch::autograd::grad({out.sum()}, {x}, {}, true)[0];  // no backward, so nothing is reduced
    EXPECT_EQ(slope[0][0].item<float>(), 1.0F);
    out.sum().backward();
    EXPECT_FALSE(net->inner->weight.grad().defined());
    model(x, true).sum().backward();
    EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 1.0F);
  });
}

// Without that, the rank would not take part, and the others' step would be averaged with its next.
TEST(Unused, AreNamedIfTheyAreAllOnOneRank) {
  for (const bool is_static : {false, true}) {
    for (const bool needs_gradient : {false, true}) {
      const auto said = outcomes(3, [&](Communicator& world) {
        Optional net;
        DistributedDataParallel model(net, world, {.static_graph = is_static});
        for (int step = 0; step < 3; ++step) {
          const Tensor x = torch::ones({1, 2}).requires_grad_(needs_gradient);
          model(x, step != 1 || world.rank() != 1).sum().backward();
        }
      });
      expect_all_say(said, {"inner.weight", "got no gradient in this backward", "find_unused_parameters"});
      expect_all_say({said[0], said[2]}, {"rank 1"});
    }
  }
}

// As the critic of what is trained: gradients only go through it.
TEST(Unused, MayBeFrozenAltogether) {
  for (const bool is_static : {false, true}) {
    on_ranks(2, [&](Communicator& world) {
      Optional net;
      torch::nn::init::ones_(net->inner->weight);
      DistributedDataParallel model(net, world, {.static_graph = is_static});
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        model(torch::full({1, 2}, world.rank() + 1.0), true).sum().backward();
        EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 1.5F);
        for (Tensor& each : net->parameters()) each.requires_grad_(false);
        const Tensor x = torch::ones({1, 2}).requires_grad_();
        model(x, true).sum().backward();
        EXPECT_EQ(x.grad()[0][0].item<float>(), 2.0F);
        for (Tensor& each : net->parameters()) each.requires_grad_(true);
      }
    });
  }
}

TEST(Unused, AreOtherOnesInEachOfSeveralForwards) {
  on_ranks(2, [](Communicator& world) {
    Branches net;
    DistributedDataParallel model(net, world,
                                  {.first_bucket_bytes = 1, .bucket_bytes = 1, .find_unused_parameters = true});
    const Tensor x = torch::full({1, 2}, world.rank() + 1.0);
    const Tensor first = model(x, true).first.sum(), second = model(x, false).first.sum();
    first.backward();
    EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), 1.5F);
    EXPECT_FALSE(net->right->weight.grad().defined());
    const Tensor third = model(x, true).first.sum();
    second.backward();
    EXPECT_FLOAT_EQ(net->right->weight.grad()[0][0].item<float>(), 1.5F);
    third.backward();
    EXPECT_FLOAT_EQ(net->left->weight.grad()[0][0].item<float>(), 3.0F);
    EXPECT_FALSE(net->idle->weight.grad().defined());
  });
}

struct TablesImpl : torch::nn::Module {
  TablesImpl() {
    for (torch::nn::Embedding* each : {&used, &idle}) {
      *each = torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true));
      register_module(each == &used ? "used" : "idle", *each);
    }
  }
  Tensor forward(const Tensor& x, bool looks_up) {
    return looks_up ? used(torch::tensor({1})).sum() + inner(x).sum() : inner(x).sum();
  }
  torch::nn::Embedding used = nullptr, idle = nullptr;
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(2, 1));
};
TORCH_MODULE(Tables);

TEST(Unused, SparseParametersHaveNoGradient) {
  for (const bool is_static : {false, true}) {
    on_ranks(2, [&](Communicator& world) {
      Tables net;
      DistributedDataParallel model(net, world, {.find_unused_parameters = !is_static, .static_graph = is_static});
      for (int step = 0; step < 2; ++step) {
        net->zero_grad(true);
        model(torch::ones({1, 2}), world.rank() == 0).backward();
        EXPECT_FALSE(net->idle->weight.grad().defined());
        EXPECT_EQ(net->used->weight.grad().to_dense()[1][0].item<float>(), 0.5F);
      }
    });
  }
}

/// Gives no gradient back.
struct Silent : torch::autograd::Function<Silent> {
  static Tensor forward(torch::autograd::AutogradContext* /*context*/, const Tensor& x) { return x.sum(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                                 const torch::autograd::variable_list& /*gradients*/) {
    return {Tensor()};
  }
};

struct MutedImpl : torch::nn::Module {
  Tensor forward(const Tensor& which, bool silent) {
    return silent ? Silent::apply(rows) : torch::embedding(rows, which, -1, false, /*sparse=*/true).sum();
  }
  Tensor rows = register_parameter("rows", torch::ones({4, 2}));
};
TORCH_MODULE(Muted);

TEST(Unused, SparseParametersMayComeWithoutGradient) {
  on_ranks(2, [](Communicator& world) {
    Muted net;
    DistributedDataParallel model(net, world, {.sparse_parameters = {"rows"}});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad(true);
      model(torch::tensor({1}), world.rank() == 1).backward();
      EXPECT_EQ(net->rows.grad().to_dense()[1][0].item<float>(), 0.5F);
    }
  });
}

TEST(Unused, AreNamedIfTheGraphIsNotStatic) {
  const auto said = outcomes(2, [](Communicator& world) {
    Heads net;
    DistributedDataParallel model(net, world, {.static_graph = true});
    for (int step = 0; step < 2; ++step) {
      const auto [left, right] = model(torch::ones({1, 2}));
      (step == 0 ? left + right : left).sum().backward();
    }
  });
  expect_all_say(said, {"right.weight", "the graph is not static"});
}

// The loss goes past what forward returned.
TEST(Wrong, GradientOfWhatWasFoundNotToBeUsed) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Branches net;
                            DistributedDataParallel model(net, world, {.find_unused_parameters = true});
                            const Tensor out = model(torch::ones({1, 2}), true).first;
                            (out.sum() + net->right->weight.sum()).backward();
                          }),
                 {"parameter right.weight got a gradient, but was found not to be used in the forward before"});
}

}  // namespace
}  // namespace trireme::test
