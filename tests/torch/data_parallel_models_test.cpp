// Models of all kinds, and those that are refused.
#include "torch/mlp.h"
#include "torch/ranks.h"
#include "trireme/torch/data_parallel.h"
#include "trireme/torch/sync_batch_norm.h"

#include <functional>
#include <sstream>
#include <torch/custom_class.h>
#include <torch/torch.h>

namespace trireme::test {
namespace {

struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    wide = register_parameter("wide", torch::full({3}, 2.0, torch::kFloat64));
    narrow = register_parameter("narrow", torch::full({2, 2}, 3.0, torch::kFloat32));
    half = register_parameter("half", torch::full({5}, 1.0, torch::kBFloat16));
    table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true)));
    turned = register_parameter("turned", torch::ones({2, 3}).t());
    frozen = register_parameter("frozen", torch::ones({2}), false);
    seen = register_buffer("seen", torch::zeros({1}, torch::kInt64));
  }
  std::tuple<Tensor, std::vector<Tensor>> forward(const Tensor& rows, double factor) {
    const Tensor sum =
        (wide.sum() + narrow.sum().to(torch::kFloat64) + half.to(torch::kFloat64).sum() + turned.sum()) * factor;
    return {sum, {table(rows)}};
  }
  Tensor wide, narrow, half, turned, frozen, seen;
  torch::nn::Embedding table = nullptr;
};
TORCH_MODULE(Mixed);

class Kinds : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(All, Kinds, ::testing::ValuesIn(kWays));

TEST_P(Kinds, OfParametersAreAllReduced) {
  on_ranks(GetParam(), 3, [](Communicator& world) {
    Mixed net;
    net->seen.fill_(world.rank() + 5);
    DistributedDataParallel model(net, world);
    EXPECT_EQ(net->seen.item<std::int64_t>(), 5);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad(true);
      net->seen.fill_(world.rank() * 10 + step);
      // Every rank looks up row 0, and another one besides.
      const auto [sum, tables] = model(torch::tensor({0, world.rank() + 1}), world.rank() + 1.0);
      EXPECT_EQ(net->seen.item<std::int64_t>(), step);
      (sum + tables[0].sum().to(torch::kFloat64) * (world.rank() + 1)).backward();
      EXPECT_TRUE(torch::equal(net->wide.grad(), torch::full({3}, 2.0, torch::kFloat64)));
      EXPECT_TRUE(torch::equal(net->narrow.grad(), torch::full({2, 2}, 2.0F)));
      EXPECT_TRUE(torch::equal(net->half.grad(), torch::full({5}, 2.0, torch::kBFloat16)));
      EXPECT_TRUE(torch::equal(net->turned.grad(), torch::full({3, 2}, 2.0F)));
      EXPECT_EQ(net->turned.grad().strides(), net->turned.strides());
      EXPECT_FALSE(net->frozen.grad().defined());
      const Tensor table = net->table->weight.grad();
      ASSERT_TRUE(table.is_sparse());
      EXPECT_TRUE(
          torch::allclose(table.to_dense().select(1, 0), torch::tensor({6.0F, 1.0F, 2.0F, 3.0F, 0.0F, 0.0F}) / 3));
    }
  });
}

struct HalfImpl : torch::nn::Module {
  HalfImpl() {
    dense = register_parameter("dense", torch::ones({3}, torch::kFloat16));
    rows = register_parameter("rows", torch::ones({4, 2}, torch::kFloat16));
  }
  Tensor forward(double factor) {
    const Tensor row = torch::embedding(rows, torch::tensor({1}), -1, false, true);
    return (dense.to(torch::kFloat32).sum() + row.to(torch::kFloat32).sum()) * factor;
  }
  Tensor dense, rows;
};
TORCH_MODULE(Half);

TEST_P(Kinds, OfHalvesHaveAMeanWhereTheSumIsTooLarge) {
  on_ranks(GetParam(), 2, [](Communicator& world) {
    Half net;
    DistributedDataParallel model(net, world, {.sparse_parameters = {"rows"}});
    for (int step = 0; step < 2; ++step) {
      net->zero_grad(true);
      model(40000.0).backward();
      EXPECT_EQ(net->dense.grad()[0].item<float>(), 40000.0F);
      EXPECT_EQ(net->rows.grad().coalesce().values()[0][0].item<float>(), 40000.0F);
    }
  });
}

/// One parameter under two names, and one result that is computed from another.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    weight = register_parameter("weight", torch::sin(torch::arange(9, torch::kFloat64)).view({3, 3}));
    again = register_parameter("again", weight);
  }
  std::pair<Tensor, Tensor> forward(const Tensor& x) {
    const Tensor features = torch::tanh(x.mm(weight));
    return {features, features.mm(again)};
  }
  Tensor weight, again;
};
TORCH_MODULE(Tied);

TEST_P(Kinds, SharedParametersAndResultsOfResults) {
  const auto loss = [](const std::pair<Tensor, Tensor>& out) {
    return out.first.pow(2).mean() + out.second.pow(2).mean();
  };
  const Tensor x = torch::sin(torch::arange(18, torch::kFloat64)).view({6, 3});
  Tied alone;
  loss(alone(x)).backward();
  on_ranks(GetParam(), 3, [&](Communicator& world) {
    for (const bool finds : {false, true}) {
      Tied net;
      DistributedDataParallel model(net, world,
                                    {.first_bucket_bytes = 1, .bucket_bytes = 1, .find_unused_parameters = finds});
      const int begin = world.rank() * (world.rank() + 1) / 2;
      const Tensor own = x.slice(0, begin, begin + world.rank() + 1);
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        model.weigh(loss(model(own)), world.rank() + 1).backward();
        EXPECT_LE(largest_difference(gradients_of(*net), gradients_of(*alone)), 1e-15);
      }
    }
  });
}

TEST(Modules, OfAllKindsCanBeWrapped) {
  on_ranks(2, [](Communicator& world) {
    MlpImpl plain;
    DistributedDataParallel by_reference(plain, world);
    EXPECT_EQ(&by_reference.module(), &plain);
    by_reference(torch::ones({1, 5})).sum().backward();

    torch::nn::Sequential sequence(torch::nn::Linear(5, 2), torch::nn::Tanh());
    DistributedDataParallel in_sequence(sequence, world);
    in_sequence.forward(torch::ones({1, 5})).sum().backward();

    DistributedDataParallel shared(std::make_shared<MlpImpl>(), world);
    shared(torch::ones({1, 5})).sum().backward();
    EXPECT_EQ(shared->parameters().size(), 6U);
  });
}

// The same bytes, so that what never heard of Trireme can load them.
TEST(Modules, AreSavedAsIfNeverWrapped) {
  const auto make = [] {
    torch::nn::Sequential net(torch::nn::Linear(5, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 3));
    const torch::NoGradGuard no_grad;
    for (Tensor& each : net->parameters()) each.copy_(torch::sin(torch::arange(each.numel()).view_as(each)));
    return net;
  };
  const Batch batch = make_batch(kRows, torch::kFloat32);
  const auto saved_after_a_step = [&](torch::nn::Sequential& net, auto& model) {
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    loss_of(model.forward(batch.x), batch).backward();
    optimizer.step();
    std::stringstream saved;
    torch::save(net, saved);
    return saved.str();
  };
  torch::nn::Sequential plain = make();
  const std::string expected = saved_after_a_step(plain, *plain);
  on_ranks(2, [&](Communicator& world) {
    torch::nn::Sequential net = make();
    DistributedDataParallel model(net, world);  // the same batch on both ranks: their mean is what each has
    EXPECT_TRUE(saved_after_a_step(net, model) == expected);

    torch::nn::Sequential converted = make();
    convert_sync_batch_norm(converted, world);
    DistributedDataParallel synced(converted, world);
    std::stringstream saved;
    torch::save(converted, saved);
    torch::nn::Sequential loaded = make();
    loaded->parameters()[0].data().zero_();
    torch::load(loaded, saved);
    EXPECT_EQ(largest_difference(loaded->parameters(), converted->parameters()), 0);
  });
}

TEST(Wrong, ModuleWithoutParameters) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            torch::nn::Sequential net{torch::nn::Tanh()};
                            const DistributedDataParallel model(net, world);
                          }),
                 {"no parameter"});
}

TEST(Wrong, Device) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Mlp net;
                            if (world.rank() == 1) net->register_parameter("far", torch::empty({7}, torch::kMeta));
                            const DistributedDataParallel model(net, world);
                          }),
                 {"rank 1's module can't be wrapped: parameter far of Float [7] is on device meta"});
}

// Forward changes the rows that a rank looks up, in place.
TEST(Wrong, EmbeddingThatForwardChanges) {
  const auto said = [](const auto& make) {
    return outcomes(2, [&](Communicator& world) {
      auto net = make();
      const DistributedDataParallel model(net, world);
    });
  };
  using namespace torch::nn;
  expect_all_say(said([] { return Embedding(EmbeddingOptions(6, 2).max_norm(1)); }),
                 {"UsageError: ", "the embedding has max_norm", "drift apart", "renorm_"});
  expect_all_say(said([] { return Sequential(Linear(2, 2), EmbeddingBag(EmbeddingBagOptions(6, 2).max_norm(1))); }),
                 {"UsageError: ", "embedding 1 has max_norm"});
  EXPECT_EQ(said([] { return Sequential(Embedding(6, 2), EmbeddingBag(6, 2)); }), std::vector<std::string>(2));
}

TEST(Wrong, ModelsThatDiffer) {
  expect_all_say(
      outcomes(3,
               [](Communicator& world) {
                 Mlp net(world.rank() == 2 ? 8 : 7);
                 const DistributedDataParallel model(net, world);
               }),
      {"rank 0 has parameter first.weight of Float [7, 5]", "rank 2 has parameter first.weight of Float [8, 5]"});
}

struct TwoNames : torch::nn::Module {
  explicit TwoNames(bool tied) {
    const torch::Tensor first = register_parameter("first", torch::ones({2}));
    register_parameter("second", tied ? first : torch::ones({2}));
  }
};

// Not only in shapes: whatever ranks would do differently because of it.
TEST(Wrong, ModelsThatDifferInOtherWays) {
  using torch::nn::Embedding;
  using torch::nn::EmbeddingOptions;
  const auto say = [](const std::function<void(Communicator&, bool)>& wrap) {
    return outcomes(2, [&](Communicator& world) { wrap(world, world.rank() == 1); });
  };
  expect_all_say(say([](Communicator& world, bool other) {
                   Mlp net;
                   if (other) net->to(torch::kFloat64);
                   const DistributedDataParallel model(net, world);
                 }),
                 {"parameter first.weight of Float [7, 5]", "rank 1 has parameter first.weight of Double [7, 5]"});
  expect_all_say(say([](Communicator& world, bool other) {
                   Mlp net;
                   if (other) net->register_buffer("seen", torch::zeros({3}));
                   const DistributedDataParallel model(net, world);
                 }),
                 {"where rank 1 has buffer seen of Float [3]"});
  expect_all_say(say([](Communicator& world, bool other) {
                   Embedding net(EmbeddingOptions(4, 2).sparse(other));
                   const DistributedDataParallel model(net, world);
                 }),
                 {"rank 0 has parameter weight of Float [4, 2], where", "[4, 2], with sparse gradients"});
  expect_all_say(say([](Communicator& world, bool other) {
                   TwoNames net(other);
                   const DistributedDataParallel model(net, world);
                 }),
                 {"rank 1 has parameter second of Float [2], the same as first"});
  expect_all_say(say([](Communicator& world, bool other) {
                   Mlp net;
                   const DistributedDataParallel model(net, world, {.bucket_bytes = other ? 100U : 200U});
                 }),
                 {"200 bytes", "100 bytes"});
  expect_all_say(say([](Communicator& world, bool other) {
                   Mlp net;
                   const DistributedDataParallel model(net, world, {.find_unused_parameters = other});
                 }),
                 {"unused parameters not looked for", "unused parameters found"});
}

TEST(Wrong, ParameterAddedAfterWrapping) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Mlp net;
                            DistributedDataParallel model(net, world);
                            net->register_parameter("late", torch::ones({2}));
                            model(torch::ones({1, 5}));
                          }),
                 {"parameter late", "after it was wrapped"});
}

/// What all ranks say if rank 1 does this to its module after wrapping.
std::vector<std::string> after_wrapping(const std::function<void(MlpImpl&)>& change, Way way = Way::inproc) {
  return outcomes(way, 3, [&](Communicator& world) {
    Mlp net;
    net->second->weight.requires_grad_(false);
    DistributedDataParallel model(net, world);
    if (world.rank() == 1) change(*net);
    for (int step = 0; step < 2; ++step) {
      model(torch::ones({1, 5}, net->third->weight.options().requires_grad(false))).sum().backward();
    }
  });
}

TEST(Wrong, ParameterChangedAfterWrappingOnOneRank) {
  for (const Way way : kWays) {
    const auto late = after_wrapping([](MlpImpl& net) { net.register_parameter("late", torch::ones({2})); }, way);
    expect_all_say(late, {"parameter late", "after it was wrapped"});
    expect_all_say({late[0], late[2]}, {"rank 1"});
  }
  const auto buffer = after_wrapping([](MlpImpl& net) { net.register_buffer("seen", torch::ones({2})); });
  expect_all_say(buffer, {"buffer seen of Float [2] was added"});
  expect_all_say({buffer[0], buffer[2]}, {"rank 1"});
  const auto dtype = after_wrapping([](MlpImpl& net) { net.to(torch::kFloat64); });
  expect_all_say(dtype, {"parameter first.weight is Double [7, 5], but was Float [7, 5] when it was wrapped"});
  expect_all_say({dtype[0], dtype[2]}, {"rank 1"});
  const auto unfrozen = after_wrapping([](MlpImpl& net) { net.second->weight.requires_grad_(true); });
  expect_all_say(unfrozen, {"parameter second.weight", "needs a gradient, but did not"});
  const auto resized = after_wrapping([](MlpImpl& net) { net.third->bias.set_data(torch::ones({1})); });
  expect_all_say(resized, {"parameter third.bias is Float [1], but was Float [3]"});
}

// Loading gives the same tensors other values.
TEST(Modules, MayBeLoadedAfterWrapping) {
  on_ranks(2, [](Communicator& world) {
    Mlp net = make_mlp(torch::kFloat32);
    DistributedDataParallel model(net, world);
    std::stringstream saved;
    torch::save(make_mlp(torch::kFloat32, 7), saved);
    torch::load(net, saved);
    (model(torch::ones({1, 5})).sum() * (world.rank() + 1.0)).backward();
    EXPECT_EQ(net->third->bias.grad()[0].item<float>(), 1.5F);
  });
}

TEST(Wrong, SparseGradientThatNobodySpokeOf) {
  struct TableImpl : torch::nn::Module {
    TableImpl() { rows = register_parameter("rows", torch::ones({4, 2})); }
    Tensor forward(const Tensor& which) { return torch::embedding(rows, which, -1, false, true); }
    Tensor rows;
  };
  const auto lookup = [](Communicator& world, const std::vector<std::string>& names) {
    auto net = std::make_shared<TableImpl>();
    DistributedDataParallel model(net, world, {.sparse_parameters = names});
    model(torch::tensor({1, 2})).sum().backward();
    EXPECT_TRUE(net->rows.grad().is_sparse());
  };
  expect_all_say(outcomes(2, [&](Communicator& world) { lookup(world, {}); }), {"rows", "sparse_parameters"});
  expect_all_say(outcomes(2, [&](Communicator& world) { lookup(world, {"columns"}); }), {"columns"});
  on_ranks(2, [&](Communicator& world) { lookup(world, {"rows"}); });
}

TEST(Wrong, DenseGradientWhereASparseOneWasSpokenOf) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Mlp net;
                            DistributedDataParallel model(net, world, {.sparse_parameters = {"third.bias"}});
                            model(torch::ones({1, 5})).sum().backward();
                          }),
                 {"parameter third.bias should have sparse gradients, but got a dense one"});
}

/// Runs backward of its own within backward, as checkpointed blocks do that are computed again.
struct Again : torch::autograd::Function<Again> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight.detach();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::AutoGradMode with_gradients(true);
    const Tensor x = saved[0].detach().requires_grad_();
    (x * saved[1]).backward(gradients[0]);
    return {x.grad(), Tensor()};
  }
};

/// Computes a layer again within backward, as checkpointed blocks are.
struct Recomputed : torch::autograd::Function<Recomputed> {
  struct Kept : torch::CustomClassHolder {
    std::shared_ptr<torch::nn::LinearImpl> layer;
  };
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const std::shared_ptr<torch::nn::LinearImpl>& layer) {
    auto kept = c10::make_intrusive<Kept>();
    kept->layer = layer;
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    context->save_for_backward({x});
    return layer->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode with_gradients(true);
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    kept->layer->forward(x).backward(gradients[0]);
    return {x.grad(), Tensor()};
  }
};

struct SavingImpl : torch::nn::Module {
  Tensor forward(const Tensor& x) {
    Tensor hidden = in(x);
    for (const auto& each : {first, last}) hidden = Recomputed::apply(hidden, each.ptr());
    return hidden;
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(2, 2));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 2));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(2, 2));
};
TORCH_MODULE(Saving);

// The first gradient comes in a backward within backward, which ends long before it.
TEST(Modules, MayComputeTheirLastBlockAgain) {
  on_ranks(2, [](Communicator& world) {
    for (const bool is_static : {false, true}) {
      Saving net;
      for (const Tensor& each : net->parameters()) torch::nn::init::constant_(each, 0.5);
      DistributedDataParallel model(net, world,
                                    {.first_bucket_bytes = 1, .bucket_bytes = 1, .static_graph = is_static});
      for (int step = 0; step < 3; ++step) {
        net->zero_grad(step == 1);
        model(torch::full({1, 2}, world.rank() + 1.0)).sum().backward();
        EXPECT_FLOAT_EQ(net->in->weight.grad()[0][0].item<float>(), 1.5F) << step;
        EXPECT_FLOAT_EQ(net->first->bias.grad()[0].item<float>(), 1.0F);
        EXPECT_FLOAT_EQ(net->last->bias.grad()[0].item<float>(), 1.0F);
      }
    }
  });
}

struct TwiceImpl : torch::nn::Module {
  TwiceImpl() {
    weight = register_parameter("weight", torch::ones({2}));
    other = register_parameter("other", torch::ones({2}));
  }
  Tensor forward(const Tensor& x) { return Again::apply(Again::apply(x, weight), weight) * other; }
  Tensor weight, other;
};
TORCH_MODULE(Twice);

TEST(Wrong, GradientThatComesTwiceInOneBackward) {
  expect_all_say(outcomes(2,
                          [](Communicator& world) {
                            Twice net;
                            DistributedDataParallel model(net, world);
                            model(torch::ones({2})).sum().backward();
                          }),
                 {"parameter weight got a gradient, but was ready: its gradient came twice in one backward"});
}

}  // namespace
}  // namespace trireme::test
