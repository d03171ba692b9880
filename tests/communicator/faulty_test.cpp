// Every collective over a network that goes wrong: right where it is only late, and an error that names the rank, never
// a hang, where messages are lost, cut, corrupted or end.
#include "communicator/cluster.h"
#include "communicator/collectives.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace trireme::test {
namespace {

using namespace std::chrono_literals;
using transport::Fault;
using transport::FaultPlan;

constexpr int kRanks = 4;
const std::vector<Collective> kEvery{Collective::allreduce, Collective::reduce_scatter, Collective::allgather,
                                     Collective::broadcast, Collective::reduce,         Collective::gather,
                                     Collective::scatter,   Collective::all_to_all,     Collective::barrier};

class Faulty : public ::testing::TestWithParam<Collective> {
 protected:
  static Case a_case() { return {.collective = GetParam(), .elements = 1000}; }

  // A rank that surely sends.
  static int sender() { return GetParam() == Collective::broadcast || GetParam() == Collective::scatter ? 0 : 1; }

  // What each rank threw when one of them has this fault; none of them takes long.
  static std::vector<std::string> outcomes_with(Fault::Kind kind, int times = 1) {
    Cluster cluster(Way::tcp, kRanks, 3s, [&](int rank) -> std::optional<FaultPlan> {
      if (rank != sender()) return std::nullopt;
      return FaultPlan{.faults = {{.kind = kind, .times = times}}};
    });
    const auto begin = std::chrono::steady_clock::now();
    auto said = cluster.outcomes([&](Communicator& world) {
      EXPECT_EQ(perform(world, a_case()), "");
      world.barrier();  // for those that need nothing of the one with the fault
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
    return said;
  }

  // All ranks fail, with this error, and name the one with the fault.
  static void expect_all_say(const std::vector<std::string>& said, const std::string& error) {
    const std::string name = "rank " + std::to_string(sender());
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(said[rank].find(error), 0) << "rank " << rank << ": " << said[rank];
      EXPECT_NE(said[rank].find(name), std::string::npos) << "rank " << rank << ": " << said[rank];
    }
  }
};

TEST_P(Faulty, DelaysChangeNothing) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Cluster cluster(Way::tcp, kRanks, 60s, [&](int rank) {
      return FaultPlan{.delay_one_in = 3, .longest_delay = 5ms, .seed = seed * 100 + static_cast<std::uint64_t>(rank)};
    });
    cluster.run([&](Communicator& world) {
      for (const std::size_t elements : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}}) {
        Case c = a_case();
        c.elements = elements;
        EXPECT_EQ(perform(world, c), "") << "seed " << seed;
      }
    });
  }
}

// All ranks wait for each other then, and who comes to its deadline first says for whom. Two that come to it at the
// same moment each say so of themselves.
TEST_P(Faulty, AMessageThatIsDroppedIsMissed) {
  for (const std::string& each : outcomes_with(Fault::Kind::drop)) {
    EXPECT_EQ(each.find("TimeoutError: rank "), 0) << each;
    EXPECT_NE(each.find(" for rank "), std::string::npos) << each;
  }
}

// A rank that hears, but is not heard. It does not know that of itself.
TEST_P(Faulty, WhoIsNotHeardIsNamed) {
  const std::vector<std::string> said = outcomes_with(Fault::Kind::drop, 1'000'000);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(said[rank].find("TimeoutError"), 0) << "rank " << rank << ": " << said[rank];
    if (rank == sender()) continue;
    // Among those that it waits for: one that is stuck before it comes to the barrier may be another.
    const std::size_t waits_for = said[rank].find(" for rank ");
    ASSERT_NE(waits_for, std::string::npos) << said[rank];
    EXPECT_NE(said[rank].find("rank " + std::to_string(sender()) + " ", waits_for), std::string::npos) << said[rank];
  }
}

TEST_P(Faulty, WhatIsCutShortMakesNoSense) {
  if (GetParam() == Collective::barrier) return;  // Its messages are empty.
  expect_all_say(outcomes_with(Fault::Kind::truncate), "ProtocolError");
}

TEST_P(Faulty, WhatIsCorruptedMakesNoSense) { expect_all_say(outcomes_with(Fault::Kind::corrupt), "ProtocolError"); }

// Calls that come later use the same memory again: what came twice must not be taken for what they wait for.
TEST_P(Faulty, WhatComesTwiceIsRefusedOrDoesNoHarm) {
  for (int after = 0; after < 12; after += 3) {
    Cluster cluster(Way::tcp, kRanks, 20s, [&](int rank) -> std::optional<FaultPlan> {
      if (rank != sender()) return std::nullopt;
      return FaultPlan{.faults = {{.kind = Fault::Kind::repeat, .after = after, .times = 4}}};
    });
    const std::vector<std::string> said = cluster.outcomes([&](Communicator& world) {
      for (const std::size_t elements : {std::size_t{1000}, std::size_t{1000}, std::size_t{1'000'000}}) {
        Case c = a_case();
        c.elements = elements;
        EXPECT_EQ(perform(world, c), "");
        world.barrier();
      }
    });
    for (const std::string& each : said) {
      const bool refused = each.starts_with("ProtocolError: rank " + std::to_string(sender()) + " ") &&
                           each.find("sent a message twice") != std::string::npos;
      EXPECT_TRUE(each.empty() || refused) << each;
    }
  }
}

TEST_P(Faulty, WhoIsKilledIsNamed) {
  const std::vector<std::string> said = outcomes_with(Fault::Kind::kill);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(said[rank].find("PeerError"), 0) << "rank " << rank << ": " << said[rank];
    if (rank == sender()) continue;
    EXPECT_NE(said[rank].find("rank " + std::to_string(sender())), std::string::npos) << said[rank];
  }
}

INSTANTIATE_TEST_SUITE_P(Collectives, Faulty, ::testing::ValuesIn(kEvery),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// It comes after it was asked where it is, so that what it sends first is the answer.
TEST(FaultyAnswer, ThatIsCutIsRefused) {
  Cluster cluster(Way::tcp, 2, 60s, [&](int rank) -> std::optional<FaultPlan> {
    if (rank == 0) return std::nullopt;
    return FaultPlan{.faults = {{.kind = Fault::Kind::truncate}}};
  });
  const std::vector<std::string> said = cluster.outcomes([&](Communicator& world) {
    std::vector<float> data(10);
    if (world.rank() == 0) world.barrier({.deadline = 20s});
    std::this_thread::sleep_for(1s);
    world.receive(data, 0);
  });
  for (const std::string& each : said) {
    EXPECT_TRUE(each.starts_with("ProtocolError: rank 1 ")) << each;
    EXPECT_NE(each.find("sent an answer that makes no sense"), std::string::npos) << each;
  }
}

// Which number a split has is not for the test to know, so the stranger tries some.
TEST(FaultySplit, WhoIsNoMemberIsRefused) {
  Cluster cluster(Way::tcp, 3, 10s, [&](int rank) -> std::optional<FaultPlan> {
    if (rank != 2) return std::nullopt;
    FaultPlan plan;
    for (std::uint32_t context = 2; context < 8; ++context) {
      plan.faults.push_back({.kind = Fault::Kind::corrupt, .after = 20, .context = context});
    }
    return plan;
  });
  const std::vector<std::string> said = cluster.outcomes([&](Communicator& world) {
    Communicator half = world.split(world.rank() == 2 ? 1 : 0, 0);
    std::vector<float> data(1000);
    for (int i = 0; i < 100; ++i) {
      world.allreduce(data);
      half.allreduce(data);
    }
  });
  for (const std::string& each : said) {
    EXPECT_TRUE(each.starts_with("ProtocolError: rank 2 ")) << each;
    EXPECT_NE(each.find("sent a message of a communicator that it is not in"), std::string::npos) << each;
  }
}

}  // namespace
}  // namespace trireme::test
