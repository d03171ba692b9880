// Who waits uses no processor; and what the environment asks for is done or refused.
#include "communicator/cluster.h"
#include "support/environment.h"
#include "support/throws.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <ctime>
#include <thread>

namespace trireme::test {
namespace {

using namespace std::chrono_literals;

class Idle : public ::testing::TestWithParam<Way> {};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

TEST_P(Idle, CommunicatorsUseNoProcessor) {
  Cluster cluster(GetParam(), 4);
  cluster.run([](Communicator& world) {
    std::vector<float> data(100'000);
    world.allreduce(data);
  });
  std::this_thread::sleep_for(20ms);
  const double before = processor_seconds();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(processor_seconds() - before, 0.02);
}

TEST_P(Idle, RanksThatWaitUseAlmostNone) {
  Cluster cluster(GetParam(), 4);
  cluster.run([](Communicator& world) { world.barrier(); });
  double used = 0;
  cluster.run([&](Communicator& world) {
    if (world.rank() == 3) {
      std::this_thread::sleep_for(100ms);
      const double before = processor_seconds();
      std::this_thread::sleep_for(500ms);
      used = processor_seconds() - before;
    }
    world.barrier();
  });
  EXPECT_LT(used, 0.1);
}

TEST_P(Idle, HandlesThatNobodyWaitsForUseAlmostNone) {
  Cluster cluster(GetParam(), 3);
  double used = 0;
  cluster.run([&](Communicator& world) {
    std::vector<int> data(1000, 1);
    if (world.rank() != 2) {
      Handle handle = world.allreduce_async(data);
      std::this_thread::sleep_for(700ms);
      handle.wait();
    } else {
      std::this_thread::sleep_for(100ms);
      const double before = processor_seconds();
      std::this_thread::sleep_for(500ms);
      used = processor_seconds() - before;
      world.allreduce(data);
    }
    EXPECT_EQ(data[0], 3);
  });
  EXPECT_LT(used, 0.1);
}

INSTANTIATE_TEST_SUITE_P(All, Idle, ::testing::ValuesIn(kWays), [](const auto& test) { return to_string(test.param); });

class Forced : public ::testing::TestWithParam<Way> {};

TEST_P(Forced, IsHonoured) {
  const Environment names("TRIREME_ALGORITHM", "ring,broadcast/chain");
  Cluster cluster(GetParam(), 3);
  for (const std::size_t bytes : {4U, 1U << 20U}) {
    const std::string allreduce = cluster[0].explain("allreduce", bytes);
    EXPECT_NE(allreduce.find("runs by ring: TRIREME_ALGORITHM asks for it"), std::string::npos) << allreduce;
    const std::string broadcast = cluster[0].explain("broadcast", bytes);
    EXPECT_NE(broadcast.find("runs by chain: TRIREME_ALGORITHM"), std::string::npos) << broadcast;
    const std::string reduce = cluster[0].explain("reduce", bytes);
    EXPECT_EQ(reduce.find("TRIREME_ALGORITHM"), std::string::npos) << reduce;
  }
  // Ring adds each block in another order. So much before so little, what is added first shows.
  cluster.run([](Communicator& world) {
    const std::vector<float> mine(3, std::array{1e8F, 1.0F, -1e8F}[world.rank()]);
    std::vector<float> forced = mine, ring = mine, server = mine;
    world.allreduce(forced);
    world.allreduce(ring, Op::sum, {.algorithm = "ring"});
    world.allreduce(server, Op::sum, {.algorithm = "parameter_server"});
    EXPECT_EQ(forced, ring);
    EXPECT_NE(forced, server);
  });
}

TEST_P(Forced, HoldsForEachCollectiveThatHasOneOfThatName) {
  const Environment names("TRIREME_ALGORITHM", "bruck,tree,scatter/direct");
  Cluster cluster(GetParam(), 3);
  const auto expect = [&](const char* collective, const char* name) {
    const std::string said = cluster[0].explain(collective, 1 << 10);
    EXPECT_NE(said.find(fmt::format("runs by {}: TRIREME_ALGORITHM asks for it", name)), std::string::npos) << said;
  };
  expect("reduce_scatter", "bruck");
  expect("allgather", "bruck");
  for (const char* collective : {"allreduce", "broadcast", "reduce", "gather", "barrier"}) expect(collective, "tree");
  expect("scatter", "direct");
  const std::string free = cluster[0].explain("all_to_all", 1 << 10);
  EXPECT_EQ(free.find("TRIREME_ALGORITHM"), std::string::npos) << free;
}

TEST_P(Forced, IsRefusedWhereItIsUnknown) {
  const Environment forced("TRIREME_ALGORITHM", "rink");
  const std::string said = usage_error([&] { const Cluster cluster(GetParam(), 2); });
  EXPECT_NE(said.find("TRIREME_ALGORITHM: no algorithm is called 'rink'"), std::string::npos) << said;
}

TEST_P(Forced, IsRefusedWhereItContradictsItself) {
  const Environment forced("TRIREME_ALGORITHM", "ring,tree");
  const std::string said = usage_error([&] { const Cluster cluster(GetParam(), 2); });
  EXPECT_NE(said.find("asks for both ring and tree"), std::string::npos) << said;
  const Environment shared("TRIREME_ALGORITHM", "direct,tree");
  const std::string gather = usage_error([&] { const Cluster cluster(GetParam(), 2); });
  EXPECT_NE(gather.find("algorithms for gather: name one, as gather/direct"), std::string::npos) << gather;
  const Environment settled("TRIREME_ALGORITHM", "direct,tree,gather/direct,scatter/tree");
  EXPECT_EQ(usage_error([&] { const Cluster cluster(GetParam(), 2); }), "nothing was thrown");
}

TEST_P(Forced, IsRefusedWhereItCannotRun) {
  const Environment forced("TRIREME_ALGORITHM", "swing,all_to_all/factored");
  Cluster cluster(GetParam(), 3);
  cluster.run([](Communicator& world) {
    std::vector<float> data(9);
    std::vector<float> out(9);
    const std::string swing = usage_error([&] { world.allreduce(data); });
    EXPECT_NE(swing.find("TRIREME_ALGORITHM: swing can't run on 3 ranks"), std::string::npos) << swing;
    const std::vector<std::size_t> shares = {3, 3, 3};
    const std::string factored = usage_error([&] { world.all_to_all(data, shares, out, shares); });
    EXPECT_NE(factored.find("TRIREME_ALGORITHM: factored can't have shares of different sizes"), std::string::npos)
        << factored;
    world.allreduce(data, Op::sum, {.algorithm = "ring"});
    world.all_to_all(data, shares, out, shares, {.algorithm = "direct"});
  });
}

TEST_P(Forced, MayNotNeedServers) {
  const Environment forced("TRIREME_ALGORITHM", "byteps");
  Cluster cluster(GetParam(), 2);
  cluster.run([](Communicator& world) {
    std::vector<float> data(9);
    const std::string said = usage_error([&] { world.allreduce(data); });
    EXPECT_NE(said.find("byteps needs extra ranks"), std::string::npos) << said;
    world.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(All, Forced, ::testing::Values(Way::inproc, Way::shm),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace trireme::test
