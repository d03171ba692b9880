#include "trireme/choose.h"

#include "trireme/error.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

const Topology kSwitch{.kind = "switch", .link = {}, .inside = {}, .links = {}};

TEST(Choose, TakesTheFastestOfAll) {
  for (const Collective collective : {Collective::allreduce, Collective::broadcast, Collective::barrier}) {
    for (const int ranks : {1, 2, 5, 8, 16}) {
      for (const std::uint64_t bytes :
           {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{1} << 16, std::uint64_t{1} << 24}) {
        const Situation situation{
            .topology = &kSwitch, .collective = collective, .setting = {.ranks = ranks}, .bytes = bytes};
        const Choice choice = choose(situation);
        ASSERT_FALSE(choice.candidates.empty());
        EXPECT_FALSE(choice.reason.empty());
        EXPECT_EQ(choice.candidates.size() + choice.left_out.size(), algorithms(collective).size());
        const auto network = make_switch(ranks, kSwitch.link);
        for (const Algorithm& algorithm : algorithms(collective)) {
          if (!algorithm.accepts(ranks) || algorithm.served) continue;
          for (int segments = 1; segments <= (algorithm.segmented ? 128 : 1); segments *= 2) {
            const Simulated cost =
                simulate(algorithm, {.ranks = ranks, .segments = segments}, *network, {.bytes = bytes});
            EXPECT_LE(choice.best().cost.time, 1.011 * cost.time)
                << algorithm.name << " " << segments << " on " << ranks;
          }
        }
      }
    }
  }
}

TEST(Choose, LatencyForSmallBandwidthForLarge) {
  const auto best = [](std::uint64_t bytes) {
    const Situation situation{.topology = &kSwitch, .setting = {.ranks = 16}, .bytes = bytes};
    return choose(situation).best();
  };
  EXPECT_LE(best(8).algorithm->rounds.value({.ranks = 16}), 2);
  EXPECT_LT(best(64 << 20).cost.bytes_per_rank, 2U * (64 << 20));
}

TEST(Choose, LeavesOutWhatCantBeSimulatedAndSaysSo) {
  // One segment is enough to see it, and sanitizers make so many ranks slow.
  const Situation situation{.topology = &kSwitch, .setting = {.ranks = 6000}, .bytes = 1 << 20, .most_segments = 1};
  const Choice choice = choose(situation);
  EXPECT_FALSE(choice.left_out.empty());
  for (const LeftOut& left_out : choice.left_out) EXPECT_FALSE(left_out.why.empty());
}

TEST(Policies, FollowTheTables) {
  const auto rule = [](std::string_view name, int ranks, std::uint64_t bytes) {
    for (const Policy& policy : policies()) {
      if (policy.name == name) return std::string(policy.rule(ranks, bytes));
    }
    return std::string("none");
  };
  const std::string rd = "recursive_doubling";
  const std::string rab = "halving_doubling";
  struct Case {
    int ranks;
    std::uint64_t bytes;
    std::string expected;
  };
  constexpr std::uint64_t kKi = 1024;
  const std::vector<Case> cases{{2, 4, rd},  // a ring with fewer elements than ranks
                                {2, 1 * kKi, rd},
                                {2, 4 * kKi, "ring"},
                                {3, 8 * kKi, rd},
                                {2, 16 * kKi, "ring"},
                                {2, 100 * kKi, "ring"},
                                {2, 256 * kKi, rab},
                                {4, 12, rd},
                                {4, 16, rd},
                                {7, 8 * kKi - 1, rd},
                                {7, 8 * kKi, rab},
                                {8, 8 * kKi - 1, rd},
                                {15, 8 * kKi, rab},
                                {16, 63, rd},
                                {16, 64, rd},
                                {31, 4 * kKi, rab},
                                {32, 127, rd},
                                {32, 128, rab},
                                {64, 256 * kKi - 1, rd},
                                {127, 256 * kKi, rab},
                                {128, 1, "tree"},
                                {128, 128 * kKi, rd},
                                {255, 256 * kKi, rab},
                                {256, 4 * kKi - 1, "tree"},
                                {256, 4 * kKi, rab},
                                {512, 2 * kKi - 1, "tree"},
                                {512, 2 * kKi, rd},
                                {2047, 16 * kKi, rab},
                                {2048, 3 * kKi, rd},
                                {2048, 4 * kKi, rd},
                                {2048, 16 * kKi, rab},
                                {4096, 2 * kKi - 1, "tree"},
                                {2048, 8 * kKi, rd},
                                {4096, 15 * kKi, rd},
                                {4096, 16 * kKi, rd},
                                {4096, 32 * kKi, rab}};
  for (const Case& c : cases)
    EXPECT_EQ(rule("openmpi", c.ranks, c.bytes), c.expected) << c.ranks << " ranks, " << c.bytes;
  EXPECT_EQ(rule("openmpi", 5, 15), rd) << "3 elements on 5 ranks";
  EXPECT_EQ(rule("mpich", 16, 8), rd);
  EXPECT_EQ(rule("mpich", 16, 60), rd);
  EXPECT_EQ(rule("mpich", 16, 64), rab);
  EXPECT_EQ(rule("mpich", 31, 64), rab);
  EXPECT_EQ(rule("mpich", 2, 9), rab);
}

TEST(Race, NamesTheFastestForEachSize) {
  const Situation situation{.topology = &kSwitch, .setting = {.ranks = 6}};
  const Race result = race(situation, 1 << 10, 1 << 20);
  ASSERT_EQ(result.bytes.size(), 11U);
  ASSERT_EQ(result.winners.size(), result.bytes.size());
  for (std::size_t i = 0; i < result.bytes.size(); ++i) {
    for (const Race::Entry& entry : result.entries) {
      EXPECT_LE(result.entries[result.winners[i]].times[i], entry.times[i]) << entry.algorithm;
    }
  }
}

}  // namespace
}  // namespace trireme
