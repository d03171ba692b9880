// What forward returns, and which backward belongs to it.
#include "torch/mlp.h"
#include "torch/ranks.h"
#include "trireme/torch/data_parallel.h"

#include <functional>
#include <optional>
#include <torch/torch.h>

namespace trireme::test {
namespace {

struct MaybeImpl : torch::nn::Module {
  MaybeImpl() { register_module("inner", inner); }
  std::pair<std::optional<Tensor>, torch::optional<Tensor>> forward(const Tensor& x, bool first) {
    if (first) return {inner(x), torch::nullopt};
    return {std::nullopt, inner(x)};
  }
  torch::nn::Linear inner{2, 1};
};
TORCH_MODULE(Maybe);

TEST(Modules, MayReturnOptionals) {
  on_ranks(2, [](Communicator& world) {
    Maybe net;
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    model(torch::ones({1, 2}), true).first->sum().backward();
    model(torch::ones({1, 2}), false).second->sum().backward();
    EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 2.0F);
  });
}

struct NestedImpl : torch::nn::Module {
  NestedImpl() { register_module("inner", inner); }
  std::tuple<int, std::pair<Tensor, std::tuple<Tensor>>> forward(const Tensor& x) { return {7, {x, {inner(x)}}}; }
  torch::nn::Linear inner{2, 1};
};
TORCH_MODULE(Nested);

TEST(Modules, MayReturnTuplesOfPairsOfTuples) {
  on_ranks(2, [](Communicator& world) {
    Nested net;
    DistributedDataParallel model(net, world, {.find_unused_parameters = true});
    std::get<0>(std::get<1>(model(torch::ones({1, 2}))).second).sum().backward();
    EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 1.0F);
  });
}

struct Opaque {
  Tensor hidden;
};
struct OpaqueNetImpl : torch::nn::Module {
  OpaqueNetImpl() { register_module("inner", inner); }
  Opaque forward(const Tensor& x) { return {inner(x)}; }
  torch::nn::Linear inner{2, 1};
};
TORCH_MODULE(OpaqueNet);

/// The same, but for what it returns.
struct SeenNetImpl : torch::nn::Module {
  SeenNetImpl() { register_module("inner", inner); }
  Tensor forward(const Tensor& x) { return inner(x); }
  torch::nn::Linear inner{2, 1};
};
TORCH_MODULE(SeenNet);

TEST(Wrong, ResultsThatCanNotBeSeenByOneRank) {
  const auto said = outcomes(3, [](Communicator& world) {
    const DistributedDataParallelOptions options{.find_unused_parameters = true};
    if (world.rank() == 1) {
      DistributedDataParallel model(OpaqueNet(), world, options);
      model(torch::ones({1, 2})).hidden.sum().backward();
    } else {
      DistributedDataParallel model(SeenNet(), world, options);
      model(torch::ones({1, 2})).sum().backward();
    }
  });
  expect_all_say(said, {"find_unused_parameters can't see"});
  expect_all_say({said[0], said[2]}, {"rank 1"});
}

TEST(Wrong, BackwardWithoutForward) {
  const auto said = outcomes(3, [](Communicator& world) {
    Mlp net;
    DistributedDataParallel model(net, world);
    (world.rank() == 1 ? net(torch::ones({1, 5})) : model(torch::ones({1, 5}))).sum().backward();
  });
  expect_all_say(said, {"backward without forward: a gradient of parameter "});
  EXPECT_NE(said[0].find("rank 1"), std::string::npos) << said[0];
}

// What has been left behind is not the forward of a later backward.
TEST(Wrong, BackwardWithoutForwardAfterOthers) {
  const Tensor x = torch::ones({1, 5});
  const std::vector<std::function<void(DistributedDataParallel<Mlp>&)>> before = {
      [&](auto& model) { (model(x) + model(x)).sum().backward(); },
      [&](auto& model) {
        const Tensor first = model(x), second = model(x);
        second.sum().backward();
        first.sum().backward();
      },
      [&](auto& model) {
        model(x);  // an evaluation, or a step that was skipped
        model(x).sum().backward();
      },
  };
  for (const auto& each : before) {
    const auto said = outcomes(2, [&](Communicator& world) {
      Mlp net;
      DistributedDataParallel model(net, world);
      each(model);
      net(x).sum().backward();
    });
    expect_all_say(said, {"backward without forward"});
  }
}

TEST(Wrong, SecondBackwardOfOneForward) {
  const auto said = outcomes(2, [](Communicator& world) {
    Mlp net;
    DistributedDataParallel model(net, world);
    const Tensor loss = model(torch::ones({1, 5})).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
  expect_all_say(said, {"a second backward of the same forward"});
}

/// Linear, so that the graph of its slope does not hold on to its results.
struct SlopedImpl : torch::nn::Module {
  SlopedImpl() { register_module("inner", inner); }
  Tensor forward(const Tensor& x) { return inner(x).view({-1}); }
  torch::nn::Linear inner{torch::nn::LinearOptions(5, 3).bias(false)};
};
TORCH_MODULE(Sloped);

// However a result is used, it is its model's.
TEST(Modules, MayHaveTheirResultsUsedInAnyWay) {
  on_ranks(2, [](Communicator& world) {
    Sloped net;
    DistributedDataParallel model(net, world);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      {
        Tensor out = model(torch::ones({1, 5}));  // a view, which gets another place in the graph
        out.mul_(world.rank() + 1);
        out.sum().backward();
      }
      EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 1.5F);
      Tensor slope;
      {
        const Tensor x = torch::ones({1, 5}).requires_grad_();
        slope = torch::autograd::grad({model(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      }
      slope.sum().backward();
      EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 2.5F);
    }
  });
}

// A gradient that is part of a later loss may be taken before other steps.
TEST(Modules, MayHaveTheirSlopesUsedLater) {
  on_ranks(2, [](Communicator& world) {
    Sloped net;
    DistributedDataParallel model(net, world);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      Tensor slope;
      {
        const Tensor x = torch::ones({1, 5}).requires_grad_();
        slope = torch::autograd::grad({model(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      }
      model(torch::full({1, 5}, world.rank() + 1.0)).sum().backward();
      slope.sum().backward();
      EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 2.5F);
    }
  });
}

/// Keeps its loss, which does not come from what it returns.
struct KeepingImpl : torch::nn::Module {
  KeepingImpl() { register_module("inner", inner); }
  Tensor forward(const Tensor& x) {
    const Tensor out = inner(x);
    loss = out.sum();
    return out.sigmoid();
  }
  torch::nn::Linear inner{5, 1};
  Tensor loss;
};
TORCH_MODULE(Keeping);

TEST(Modules, MayKeepTheirLoss) {
  on_ranks(2, [](Communicator& world) {
    Keeping net;
    DistributedDataParallel model(net, world);
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      model(torch::full({1, 5}, world.rank() + 1.0));
      net->loss.backward();
      EXPECT_EQ(net->inner->weight.grad()[0][0].item<float>(), 1.5F);
    }
  });
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Keeping net;
                            DistributedDataParallel model(net, world);
                            const Tensor out = model(torch::ones({1, 5}));
                            out.sum().backward({}, /*retain_graph=*/true);
                            model(torch::ones({1, 5}));
                            out.sum().backward();
                          }),
                 {"a second backward of the same forward"});
}

}  // namespace
}  // namespace trireme::test
