// Which checkpoint is taken, and which are refused.
#include "trireme/torch/checkpoint.h"

#include "communicator/start.h"
#include "support/run.h"
#include "support/throws.h"
#include "torch/ranks.h"

#include <gtest/gtest.h>

#include <memory>
#include <torch/torch.h>

namespace trireme::test {
namespace {

torch::nn::Linear filled(double value) {
  torch::nn::Linear net(2, 1);
  const torch::NoGradGuard no_grad;
  net->weight.fill_(value);
  net->bias.fill_(-value);
  return net;
}

void save_steps(Communicator& world, const std::string& folder, std::initializer_list<int> steps) {
  torch::nn::Linear net = filled(0);
  Checkpoint checkpoint(world, folder, *net, {.keep = 10});
  for (const int step : steps) {
    const torch::NoGradGuard no_grad;
    net->weight.fill_(step);
    checkpoint.save(step, "extra " + std::to_string(step));
  }
}

std::string path_of(const TemporaryFolder& folder, int step) {
  std::string digits = std::to_string(step);
  return folder / ("step-" + std::string(12 - digits.size(), '0') + digits + ".trireme");
}

class Ranks : public ::testing::TestWithParam<int> {
 protected:
  TemporaryFolder folder;
};

TEST_P(Ranks, StartFromNothing) {
  on_ranks(GetParam(), [&](Communicator& world) {
    torch::nn::Linear net = filled(3);
    Checkpoint checkpoint(world, folder / "new", *net);
    EXPECT_EQ(checkpoint.load_latest(), std::nullopt);
    EXPECT_TRUE(checkpoint.refused().empty());
    checkpoint.save(0);
    EXPECT_TRUE(std::filesystem::exists(folder / "new"));
    EXPECT_EQ(checkpoint.load_latest(), 0);
  });
}

TEST_P(Ranks, LoadTheNewest) {
  on_ranks(GetParam(), [&](Communicator& world) {
    save_steps(world, folder / "", {9, 10, 100});
    // Rank 0's is what all get, and only rank 0 needs to see the folder.
    torch::nn::Linear net = filled(world.rank());
    const float* memory = net->weight.data_ptr<float>();
    Checkpoint checkpoint(world, world.rank() == 0 ? folder / "" : "/nowhere", *net);
    EXPECT_EQ(checkpoint.load_latest(), 100);
    EXPECT_EQ(checkpoint.extra(), "extra 100");
    EXPECT_TRUE(torch::equal(net->weight, torch::full({1, 2}, 100.F)));
    EXPECT_EQ(net->weight.data_ptr<float>(), memory);
    EXPECT_TRUE(net->weight.requires_grad());
  });
}

TEST_P(Ranks, FindTheFileWhenSaveReturns) {
  on_ranks(GetParam(), [&](Communicator& world) {
    torch::nn::Linear net = filled(1);
    Checkpoint checkpoint(world, folder / "", *net);
    for (int step = 0; step < 20; ++step) {
      checkpoint.save(step, std::string("zeros \0 too", 11));
      EXPECT_TRUE(std::filesystem::exists(path_of(folder, step)));
      world.barrier();
    }
    checkpoint.load_latest();
    EXPECT_EQ(checkpoint.extra(), std::string("zeros \0 too", 11));
  });
  EXPECT_FALSE(std::filesystem::exists(path_of(folder, 17)));
  EXPECT_TRUE(std::filesystem::exists(path_of(folder, 18)));
}

TEST_P(Ranks, TakeTheOneBeforeADamagedOne) {
  on_ranks(GetParam(), [&](Communicator& world) { save_steps(world, folder / "", {1, 2, 3}); });
  std::string cut = read_whole(path_of(folder, 3));
  cut.resize(cut.size() / 2);
  folder.write("step-000000000003.trireme", cut);
  folder.write("step-000000000002.trireme", "something else altogether, and long enough to be looked at");
  folder.write("step-000000000004.trireme.part", cut);
  folder.write("step-5.trireme.old", cut);  // not a checkpoint's name
  on_ranks(GetParam(), [&](Communicator& world) {
    torch::nn::Linear net = filled(0);
    Checkpoint checkpoint(world, folder / "", *net);
    EXPECT_EQ(checkpoint.load_latest(), 1);
    EXPECT_TRUE(torch::equal(net->weight, torch::full({1, 2}, 1.F)));
    ASSERT_EQ(checkpoint.refused().size(), 3U);
    EXPECT_NE(checkpoint.refused()[0].find("4.trireme.part: it was not written to its end"), std::string::npos);
    EXPECT_NE(checkpoint.refused()[1].find("3.trireme: the file is cut off"), std::string::npos);
    EXPECT_NE(checkpoint.refused()[2].find("2.trireme: it does not begin as"), std::string::npos);
    // What was refused does not count as kept, and goes in its turn.
    checkpoint.save(2);
    EXPECT_EQ(checkpoint.load_latest(), 2);
    checkpoint.save(5);
    EXPECT_EQ(checkpoint.load_latest(), 5);
    EXPECT_TRUE(checkpoint.refused().empty());
  });
  EXPECT_FALSE(std::filesystem::exists(path_of(folder, 1)));
  EXPECT_TRUE(std::filesystem::exists(path_of(folder, 2)));
  EXPECT_FALSE(std::filesystem::exists(path_of(folder, 3)));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-000000000004.trireme.part"));
}

TEST_P(Ranks, DoNotStartAnewWhenAllAreDamaged) {
  on_ranks(GetParam(), [&](Communicator& world) { save_steps(world, folder / "", {1}); });
  folder.write("step-000000000001.trireme", "");
  expect_all_say(outcomes(GetParam(),
                          [&](Communicator& world) {
                            torch::nn::Linear net = filled(0);
                            Checkpoint(world, folder / "", *net).load_latest();
                          }),
                 {"UsageError: ", "no checkpoint can be used", "000000000001.trireme: it has only 0 bytes"});
}

// It may be whole: neither is an older one taken, nor does it go.
TEST_P(Ranks, AllHearThatTheNewestCanNotBeRead) {
  on_ranks(GetParam(), [&](Communicator& world) { save_steps(world, folder / "", {1, 2}); });
  const auto expect = [&](const std::string& reason) {
    const auto said = outcomes(GetParam(), [&](Communicator& world) {
      torch::nn::Linear net = filled(7);
      Checkpoint checkpoint(world, folder / "", *net);
      try {
        checkpoint.load_latest();
      } catch (const SystemError&) {
        EXPECT_TRUE(torch::equal(net->weight, torch::full({1, 2}, 7.F)));
        checkpoint.save(3);
        throw;
      }
    });
    expect_all_say(said, {"SystemError: ", path_of(folder, 2) + ": " + reason, "move it away"});
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::symlink_status(path_of(folder, 2))));
    std::filesystem::remove(path_of(folder, 3));
    std::filesystem::remove_all(path_of(folder, 2));
  };
  std::filesystem::rename(path_of(folder, 2), folder / "elsewhere");
  std::filesystem::create_symlink(folder / "not mounted", path_of(folder, 2));
  expect("No such file or directory");
  std::filesystem::create_symlink(path_of(folder, 2), path_of(folder, 2));
  expect("Too many levels of symbolic links");
  std::filesystem::create_directories(path_of(folder, 2) + "/x");
  expect("Is a directory");
  // Nor is a folder taken for one without checkpoints.
  std::filesystem::create_symlink("loop", folder / "loop");
  const auto said = outcomes(GetParam(), [&](Communicator& world) {
    torch::nn::Linear net = filled(7);
    Checkpoint(world, folder / "loop", *net).load_latest();
  });
  expect_all_say(said, {"SystemError: ", "loop"});
}

TEST_P(Ranks, AllHearThatWritingFailed) {
  folder.write("file", "");
  expect_all_say(outcomes(GetParam(), [&](Communicator& world) { save_steps(world, folder / "file", {1}); }),
                 {"SystemError: ", "file/step-000000000001.trireme"});
}

TEST_P(Ranks, AllHearOfAnotherModelOnOneOfThem) {
  on_ranks(GetParam(), [&](Communicator& world) { save_steps(world, folder / "", {1}); });
  expect_all_say(outcomes(GetParam(),
                          [&](Communicator& world) {
                            const bool last = world.rank() == world.ranks() - 1;
                            torch::nn::Linear net(last ? 4 : 2, 1);
                            const auto before = net->weight.clone();
                            Checkpoint checkpoint(world, folder / "", *net);
                            try {
                              checkpoint.load_latest();
                            } catch (const UsageError&) {
                              EXPECT_TRUE(torch::equal(net->weight, before));
                              throw;
                            }
                          }),
                 {"UsageError: ", "1.trireme", "parameter weight", "Float [1, 2] there", "Float [1, 4] in this one",
                  "rank " + std::to_string(GetParam() - 1)});
}

TEST_P(Ranks, KeepEverythingWhenOneOfThemRefuses) {
  on_ranks(GetParam(), [&](Communicator& world) {
    torch::nn::Linear net = filled(1);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    DistributedSampler sampler(20, world);
    sampler.set_epoch(3);
    sampler.next(2);
    Checkpoint(world, folder / "", *net, {.optimizer = &optimizer, .sampler = &sampler}).save(1, "saved");
  });
  const auto said = outcomes(GetParam(), [&](Communicator& world) {
    const bool last = world.rank() == world.ranks() - 1;
    torch::nn::Linear net = filled(2);
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    DistributedSampler sampler(last ? 21 : 20, world);
    Checkpoint checkpoint(world, folder / "", *net, {.optimizer = &optimizer, .sampler = &sampler});
    try {
      checkpoint.load_latest();
    } catch (const UsageError&) {
      EXPECT_TRUE(torch::equal(net->weight, torch::full({1, 2}, 2.F)));
      EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
      EXPECT_EQ(sampler.epoch(), 0U);
      EXPECT_EQ(sampler.position(), 0U);
      EXPECT_EQ(checkpoint.extra(), "");
      throw;
    }
  });
  expect_all_say(said, {"UsageError: ", "dataset of 20 samples, this one of 21"});
}

TEST_P(Ranks, HaveToBeAsManyAsBefore) {
  on_ranks(GetParam(), [&](Communicator& world) { save_steps(world, folder / "", {1}); });
  const auto load = [&](bool other_ranks) {
    return outcomes(GetParam() + 2, [&, other_ranks](Communicator& world) {
      torch::nn::Linear net = filled(0);
      Checkpoint checkpoint(world, folder / "", *net, {.other_ranks = other_ranks});
      EXPECT_EQ(checkpoint.load_latest(), 1);
      EXPECT_EQ(net->weight[0][0].item<float>(), 1);
    });
  };
  const std::string before = std::to_string(GetParam());
  expect_all_say(load(false), {"UsageError: ", "of " + before + " ranks", "there are " + std::to_string(GetParam() + 2),
                               "start " + before, "other_ranks"});
  EXPECT_EQ(load(true), std::vector<std::string>(GetParam() + 2));
}

TEST_P(Ranks, HaveZerosWhereThereWereGradients) {
  on_ranks(GetParam(), [&](Communicator& world) {
    struct Net : torch::nn::Module {
      torch::Tensor dense = register_parameter("dense", torch::ones({2, 3}));
      torch::Tensor sparse = register_parameter("sparse", torch::ones({4, 2}));
      torch::Tensor none = register_parameter("none", torch::ones({2}));
    };
    const auto as_saved = [](const Net& net) {
      EXPECT_TRUE(torch::equal(net.dense.grad(), torch::zeros({2, 3})));
      EXPECT_TRUE(net.sparse.grad().is_sparse());
      EXPECT_TRUE(torch::equal(net.sparse.grad().to_dense(), torch::zeros({4, 2})));
      EXPECT_FALSE(net.none.grad().defined());
    };
    Net net;
    net.dense.mutable_grad() = torch::ones({2, 3});
    net.sparse.mutable_grad() = torch::ones({4, 2}).to_sparse();
    Checkpoint checkpoint(world, folder / "", net);
    checkpoint.save(1);

    Net fresh;
    Checkpoint(world, folder / "", fresh).load_latest();
    as_saved(fresh);
    // What has trained already keeps the gradients' memory.
    const void* memory = net.dense.grad().data_ptr();
    net.none.mutable_grad() = torch::ones({2});
    checkpoint.load_latest();
    as_saved(net);
    EXPECT_EQ(net.dense.grad().data_ptr(), memory);
  });
}

// Momentum and weight decay move whatever has a gradient, be it zero.
TEST_P(Ranks, GiveNoGradientToWhatIsFrozen) {
  on_ranks(GetParam(), [&](Communicator& world) {
    torch::nn::Linear net(2, 2);
    torch::nn::init::ones_(net->weight);
    torch::nn::init::ones_(net->bias);
    const torch::optim::SGDOptions options = torch::optim::SGDOptions(0.1).weight_decay(0.1).momentum(0.9);
    torch::optim::SGD optimizer(net->parameters(), options);
    net(torch::ones({1, 2})).sum().backward();
    optimizer.step();
    Checkpoint(world, folder / "", *net, {.optimizer = &optimizer}).save(1);

    torch::nn::Linear frozen(2, 2);
    frozen->weight.requires_grad_(false);
    torch::optim::SGD other(frozen->parameters(), options);
    Checkpoint(world, folder / "", *frozen, {.optimizer = &other}).load_latest();
    other.step();
    EXPECT_TRUE(torch::equal(frozen->weight, net->weight));
    EXPECT_FALSE(torch::equal(frozen->bias, net->bias)) << "it is not frozen, and goes on";
  });
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Ranks, ::testing::Values(1, 3, 5));

TEST(Checkpoint, WithAnyByteFlippedIsRefused) {
  const TemporaryFolder folder;
  Communicator world = threads_world(1)[0];
  save_steps(world, folder / "", {1, 2});
  const std::string whole = read_whole(path_of(folder, 2));
  torch::nn::Linear net = filled(0);
  Checkpoint checkpoint(world, folder / "", *net);
  for (std::size_t i = 0; i < whole.size(); i += i < 300 || i + 300 > whole.size() ? 1 : 7) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    folder.write("step-000000000002.trireme", bytes);
    ASSERT_EQ(checkpoint.load_latest(), 1) << "byte " << i;
    ASSERT_EQ(checkpoint.refused().size(), 1U);
    ASSERT_NE(checkpoint.refused()[0].find("000000000002.trireme: "), std::string::npos);
  }
  for (std::size_t length = 0; length < whole.size(); length += 13) {
    folder.write("step-000000000002.trireme", whole.substr(0, length));
    ASSERT_EQ(checkpoint.load_latest(), 1) << "length " << length;
  }
  folder.write("step-000000000002.trireme", whole);
  EXPECT_EQ(checkpoint.load_latest(), 2);
}

struct Described {
  std::shared_ptr<torch::nn::Module> net;
  std::vector<std::string> words;
};

TEST(Checkpoint, OfAnotherModelSaysWhatIsDifferent) {
  const TemporaryFolder folder;
  Communicator world = threads_world(1)[0];
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  Checkpoint(world, folder / "", *net).save(1);

  torch::nn::Sequential wide(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(5));
  torch::nn::Sequential typed(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  typed->to(torch::kDouble);
  torch::nn::Sequential longer(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::BatchNorm1d(2));
  torch::nn::Sequential bare(torch::nn::Linear(3, 4));
  torch::nn::Sequential no_bias(torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false)),
                                torch::nn::BatchNorm1d(4));
  for (const auto& [other, words] : std::vector<Described>{
           {wide.ptr(), {"parameter 1.weight is Float [4] there, but Float [5] in this one"}},
           {typed.ptr(), {"parameter 0.weight is Float [4, 3] there, but Double [4, 3]"}},
           {longer.ptr(),
            {"where this one has parameter 2.weight, Float [2], it has buffer 1.running_mean, Float [4]"}},
           {bare.ptr(), {"parameter 1.weight, Float [4], is not in this one"}},
           {no_bias.ptr(), {"where this one has parameter 1.weight, Float [4], it has parameter 0.bias, Float [4]"}},
       }) {
    const std::string message = usage_error([&] { Checkpoint(world, folder / "", *other).load_latest(); });
    for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

TEST(Checkpoint, OfAnotherOptimiserOrDatasetIsRefused) {
  const TemporaryFolder folder;
  Communicator world = threads_world(1)[0];
  torch::nn::Linear net(3, 4);
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1));
  DistributedSampler sampler(10, world);
  const auto load = [&](const CheckpointOptions& options) {
    return usage_error([&] { Checkpoint(world, folder / "", *net, options).load_latest(); });
  };

  Checkpoint(world, folder / "", *net).save(1);
  EXPECT_NE(load({.optimizer = &adam}).find("saved without an optimiser"), std::string::npos);
  EXPECT_NE(load({.sampler = &sampler}).find("saved without a sampler"), std::string::npos);

  Checkpoint(world, folder / "", *net, {.optimizer = &adam, .sampler = &sampler}).save(2);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_NE(load({.optimizer = &sgd}).find("optim::Adam, but this one has the kind: torch::optim::SGD"),
            std::string::npos);
  torch::optim::Adam part({net->bias}, torch::optim::AdamOptions(0.1));
  EXPECT_NE(
      load({.optimizer = &part}).find("group 0: Float [4, 3], but this one has parameter 0 of group 0: Float [4]"),
      std::string::npos);
  DistributedSampler other(11, world);
  EXPECT_NE(load({.sampler = &other}).find("10 samples"), std::string::npos);
  EXPECT_EQ(load({}), "nothing was thrown");
}

TEST(Checkpoint, RefusesWrongArguments) {
  const TemporaryFolder folder;
  Communicator world = threads_world(1)[0];
  torch::nn::Linear net(2, 1);
  EXPECT_NE(usage_error([&] { Checkpoint(world, "", *net); }).find("need a folder"), std::string::npos);
  EXPECT_NE(usage_error([&] { Checkpoint(world, "x", *net, {.keep = 0}); }).find("at least one"), std::string::npos);
  EXPECT_NE(usage_error([&] { Checkpoint(world, folder / "", *net).save(-1); }).find("negative"), std::string::npos);
  EXPECT_TRUE(folder.empty());
}

TEST(Checkpoint, OfDifferentStepsIsRefused) {
  const TemporaryFolder folder;
  expect_all_say(outcomes(3,
                          [&](Communicator& world) {
                            torch::nn::Linear net = filled(0);
                            Checkpoint(world, folder / "", *net).save(world.rank() == 2 ? 8 : 7);
                          }),
                 {"UsageError: ", "step 7", "step 8", "all ranks have to save the same step"});
  EXPECT_TRUE(folder.empty());
}

}  // namespace
}  // namespace trireme::test
