// Communicators made of others.
#include "communicator/cluster.h"
#include "communicator/collectives.h"

#include <gtest/gtest.h>

#include <thread>

namespace trireme::test {
namespace {

class Split : public ::testing::TestWithParam<Way> {};

TEST_P(Split, ColoursAndKeys) {
  constexpr int kRanks = 6;
  Cluster cluster(GetParam(), kRanks);
  cluster.run([](Communicator& world) {
    // Two groups, each from its highest rank to its lowest; negative colours and keys are as good as others.
    const int colour = world.rank() % 2 == 0 ? -7 : 1'000'000'000;
    Communicator half = world.split(colour, -world.rank());
    EXPECT_EQ(half.ranks(), 3);
    EXPECT_EQ(half.rank(), 2 - world.rank() / 2);
    std::vector<int> all(3);
    half.allgather(std::vector<int>{world.rank()}, all);
    const int odd = world.rank() % 2;
    EXPECT_EQ(all, (std::vector<int>{4 + odd, 2 + odd, odd}));

    // Same keys: in the order of ranks.
    Communicator again = half.split(0, 3);
    EXPECT_EQ(again.rank(), half.rank());
    again.allgather(std::vector<int>{world.rank()}, all);
    EXPECT_EQ(all, (std::vector<int>{4 + odd, 2 + odd, odd}));

    // One rank alone.
    Communicator alone = world.split(world.rank(), 0);
    EXPECT_EQ(alone.ranks(), 1);
    for (int collective = 0; collective < kCollectives; ++collective) {
      EXPECT_EQ(perform(alone, {.collective = static_cast<Collective>(collective), .elements = 100}), "");
    }
  });
}

TEST_P(Split, WorksAfterItsParentHasGone) {
  Cluster cluster(GetParam(), 4);
  std::vector<std::vector<Communicator>> kept(4);
  cluster.run([&](Communicator& world) {
    Communicator pair = world.split(world.rank() / 2, 0);
    kept[world.rank()].push_back(pair.split(0, -pair.rank()));
  });
  for (int rank = 0; rank < 4; ++rank) cluster.drop(rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator& pair = kept[rank].front();
      EXPECT_EQ(pair.rank(), 1 - rank % 2);
      EXPECT_EQ(perform(pair, {.elements = 5000}), "");
      kept[rank].clear();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The same ranks split two communicators at a time, again and again: no two of the new ones may be mixed up.
TEST_P(Split, AtTheSameTimeOnSeveralThreads) {
  constexpr int kRanks = 3;
  Cluster cluster(GetParam(), kRanks);
  cluster.run([](Communicator& world) {
    std::vector<Communicator> parents = {world.split(0, 0), world.split(0, -world.rank())};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        std::vector<Communicator> children;
        for (int n = 0; n < 20; ++n) {
          children.push_back(parents[i].split(0, world.rank()));
          std::vector<int> data(500, i * 100 + n);
          children.back().allreduce(data);
          ASSERT_EQ(data, std::vector<int>(500, kRanks * (i * 100 + n)));
        }
        for (Communicator& child : children) child.barrier();
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Split, GroupsWorkAtTheSameTime) {
  Cluster cluster(GetParam(), 6);
  cluster.run([](Communicator& world) {
    Communicator rows = world.split(world.rank() / 3, world.rank());
    Communicator columns = world.split(world.rank() % 3, world.rank());
    for (int n = 0; n < 30; ++n) {
      std::vector<double> a(1000, world.rank());
      std::vector<double> b(70'000, world.rank());
      Handle in_rows = rows.allreduce_async(a);
      Handle in_columns = columns.allreduce_async(b);
      Handle in_all = world.barrier_async();
      in_columns.wait();
      EXPECT_EQ(b[69'999], world.rank() % 3 * 2 + 3);
      in_rows.wait();
      EXPECT_EQ(a[999], world.rank() < 3 ? 3 : 12);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Split, ::testing::ValuesIn(kWays),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace trireme::test
