// What every transport promises.
#include "support/random.h"
#include "transport/cluster.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <poll.h>
#include <thread>
#include <vector>

namespace trireme::test {

namespace {

const std::vector<std::size_t> kSizes{0, 1, 3, 64, 1000, 4096, 65536, (1 << 20) + 7};
const std::vector<int> kRanks{2, 3, 5};

class EveryTransport : public ::testing::TestWithParam<Kind> {
 protected:
  static const Kind& kind() { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Conformance, EveryTransport, ::testing::ValuesIn(every_kind()),
                         [](const auto& kind) { return kind.param.name; });

// Calls send(from, to) for each pair.
template <typename Send>
void every_pair(Cluster& cluster, Send&& send) {
  for (const auto& from : cluster) {
    for (const auto& to : cluster) {
      if (from != to) send(*from, to->rank());
    }
  }
}

bool all_arrived(const Cluster& cluster, std::size_t from_each) {
  for (const auto& party : cluster) {
    if (party->arrivals.size() < from_each * (cluster.size() - 1) || party->under_way() > 0) return false;
  }
  return true;
}

// Messages that share a segment come in the order of their numbers.
void expect_in_order(const Party& party) {
  std::map<std::pair<int, std::uint32_t>, std::uint32_t> least;
  for (const Party::Arrival& arrival : party.arrivals) {
    std::uint32_t& next = least[{arrival.peer, arrival.envelope.segment}];
    EXPECT_GE(arrival.envelope.index, next) << "from " << arrival.peer << " to " << party.rank();
    next = arrival.envelope.index + 1;
  }
}

void expect_nobody_lost(const Cluster& cluster) {
  for (const auto& party : cluster) {
    for (const auto& [peer, why] : party->losses) {
      ADD_FAILURE() << "rank " << party->rank() << " lost " << peer << ": " << why;
    }
  }
}

TEST_P(EveryTransport, BringsEverySizeToEveryRank) {
  for (const int ranks : kRanks) {
    Cluster cluster(kind(), ranks);
    std::size_t count = 0;
    for (const std::size_t size : kSizes) {
      for (const int pieces : {1, 2, 7}) {
        every_pair(cluster, [&](Party& from, int to) { from.send(to, size, pieces); });
        ++count;
        if (size < 65536) continue;  // the small ones all at once
        ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, count); }));
      }
    }
    for (const auto& party : cluster) expect_in_order(*party);
    expect_nobody_lost(cluster);
  }
}

TEST_P(EveryTransport, BringsEverySizeToEveryRankOnThreads) {
  for (const int ranks : kRanks) {
    Cluster cluster(kind(), ranks);
    cluster.on_threads([&](Party& party) {
      for (const std::size_t size : kSizes) {
        for (int to = 0; to < ranks; ++to) {
          if (to != party.rank()) party.send(to, size, 3);
        }
      }
      const std::size_t expected = kSizes.size() * (ranks - 1);
      EXPECT_TRUE(Cluster::until(party, [&] { return party.arrivals.size() == expected && party.under_way() == 0; }));
    });
    for (const auto& party : cluster) expect_in_order(*party);
    expect_nobody_lost(cluster);
  }
}

TEST_P(EveryTransport, HasManyMessagesInFlight) {
  Cluster cluster(kind(), 3);
  const std::size_t count = 1000;
  for (std::size_t i = 0; i < count; ++i) {
    every_pair(cluster, [&](Party& from, int to) { from.send(to, i % 700, i % 2 == 0 ? 1 : 3); });
  }
  ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, count); }));
  for (const auto& party : cluster) expect_in_order(*party);
}

TEST_P(EveryTransport, CarriesPiecesBeyondWhatOneCallTakes) {
  Cluster cluster(kind(), 2);
  cluster[0].send(1, 100000, 200);
  cluster[0].send(1, 3, 1);
  cluster[0].send(1, 50, 100);
  ASSERT_TRUE(cluster.until([&] { return cluster[1].arrivals.size() == 3 && cluster[0].under_way() == 0; }));
  expect_in_order(cluster[1]);
}

TEST_P(EveryTransport, PutsMessagesIntoPlace) {
  Cluster cluster(kind(), 3);
  for (const auto& party : cluster) {
    // Some are placed, whole or in pieces, and some not.
    party->pieces_to_place = [](int, const Envelope& envelope) { return std::vector{1, 0, 3, 40}[envelope.index % 4]; };
  }
  std::size_t count = 0;
  for (const std::size_t size : kSizes) {
    for (int i = 0; i < 9; ++i, ++count) {
      every_pair(cluster, [&](Party& from, int to) { from.send(to, size, 2); });
    }
    ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, count); }));
  }
  for (const auto& party : cluster) expect_in_order(*party);
}

TEST_P(EveryTransport, KeepsMessagesUntilTheyAreReleased) {
  Cluster cluster(kind(), 3);
  for (const auto& party : cluster) {
    party->keeps = [](int, const Envelope& envelope) { return envelope.index % 3 != 0; };
  }
  std::size_t count = 0;
  for (int round = 0; round < 30; ++round) {
    for (const std::size_t size : {1, 1000, 5000, 70000}) {
      every_pair(cluster, [&](Party& from, int to) { from.send(to, size); });
      ++count;
    }
    ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, count); }));
    for (const auto& party : cluster) party->release_some(party->kept() / 2);
  }
  for (const auto& party : cluster) party->release_some(party->kept());
  expect_nobody_lost(cluster);
}

TEST_P(EveryTransport, TakesMessagesFromWithinArrived) {
  Cluster cluster(kind(), 2);
  constexpr std::size_t kRounds = 2000;
  for (const auto& party : cluster) {
    party->when_arrived = [&party](int peer, const Envelope& envelope) {
      if (envelope.index + 1 < kRounds) party->send(peer, envelope.index % 100);
    };
  }
  cluster[0].send(1, 10);
  cluster[1].send(0, 10);
  ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, kRounds); }));
  for (const auto& party : cluster) expect_in_order(*party);
}

TEST_P(EveryTransport, TakesMessagesFromWithinSent) {
  Cluster cluster(kind(), 2);
  const int count = 2000;
  int posted = 1;
  cluster[0].when_sent = [&] {
    if (posted < count) cluster[0].send(1, ++posted % 100);
  };
  cluster[0].send(1, 10);
  ASSERT_TRUE(cluster.until([&] { return cluster[1].arrivals.size() == count && cluster[0].under_way() == 0; }));
  expect_in_order(cluster[1]);
}

TEST_P(EveryTransport, BringsRandomTrafficWhole) {
  for (int seed = 0; seed < kEffort; ++seed) {
    const int ranks = kRanks[seed % kRanks.size()];
    Cluster cluster(kind(), ranks);
    const int count = 300;
    std::atomic<int> done = 0;
    cluster.on_threads([&](Party& party) {
      Random random(mix(4, seed, party.rank()));
      party.pieces_to_place = [&](int, const Envelope&) { return random.chance(2) ? random.below(6) : 0; };
      party.keeps = [&](int, const Envelope&) { return random.chance(3); };
      for (int i = 0; i < count; ++i) {
        const int to = (party.rank() + 1 + i % (ranks - 1)) % ranks;
        const int magnitude = random.chance(10) ? 300000 : random.pick<int>({100, 3000, 20000});
        const Sending sending = random.chance(3) ? Sending::lent : Sending::copied;
        party.send(to, random.below(magnitude), random.between(1, 5), sending, random.below(4));
        if (random.chance(2)) party.transport().progress();
        if (random.chance(4)) party.release_some(2);
      }
      // Others may still wait for this rank's help: all go on until all are done.
      bool counted = false;
      const auto all_done = [&] {
        party.release_some(1);
        const bool mine = party.arrivals.size() == count && party.under_way() == 0 && party.kept() == 0;
        if (mine && !std::exchange(counted, true)) ++done;
        return done == ranks;
      };
      EXPECT_TRUE(Cluster::until(party, all_done));
    });
    for (const auto& party : cluster) expect_in_order(*party);
    expect_nobody_lost(cluster);
  }
}

TEST_P(EveryTransport, LendsOrCopies) {
  Cluster cluster(kind(), 2);
  for (const std::size_t size : kSizes) {
    for (const int pieces : {1, 3}) cluster[0].send(1, size, pieces, Sending::lent);
  }
  const auto done = [&] { return cluster[1].arrivals.size() == 2 * kSizes.size() && cluster[0].under_way() == 0; };
  ASSERT_TRUE(cluster.until(done));
  expect_in_order(cluster[1]);
  EXPECT_EQ(cluster[0].answers, 0);
}

TEST_P(EveryTransport, BringsAnswersToWhatItLent) {
  Cluster cluster(kind(), 2);
  for (const std::size_t size : kSizes) {
    for (const int pieces : {1, 3}) cluster[0].send(1, size, pieces, Sending::offered);
  }
  const auto done = [&] { return cluster[1].arrivals.size() == 2 * kSizes.size() && cluster[0].under_way() == 0; };
  ASSERT_TRUE(cluster.until(done));
  const auto lent = std::count_if(cluster[1].arrivals.begin(), cluster[1].arrivals.end(),
                                  [](const Party::Arrival& arrival) { return arrival.lent; });
  EXPECT_GE(cluster[0].answers, lent);
}

// More places than a record can list.
TEST_P(EveryTransport, SendsWhatIsInAnyNumberOfPieces) {
  Cluster cluster(kind(), 2);
  for (const Sending sending : {Sending::copied, Sending::lent, Sending::offered}) {
    for (const int pieces : {2, 16384, 20000}) cluster[0].send(1, 100'000, pieces, sending);
  }
  ASSERT_TRUE(cluster.until([&] { return cluster[1].arrivals.size() == 9 && cluster[0].under_way() == 0; }));
  expect_in_order(cluster[1]);
}

// What is offered need not lie where peers see it, and more may be offered than there is room for at once.
TEST_P(EveryTransport, BringsAnswersToAnyMemory) {
  Cluster cluster(kind(), 3);
  constexpr int kMessages = 100;
  every_pair(cluster, [&](Party& from, int to) {
    from.memory = nullptr;
    for (int i = 0; i < kMessages; ++i) from.send(to, std::size_t{1} << (8 + i % 11), 1 + i % 3, Sending::offered);
  });
  const auto done = [&] {
    return std::all_of(cluster.begin(), cluster.end(), [](const auto& party) {
      return party->arrivals.size() == std::size_t{2} * kMessages && party->under_way() == 0;
    });
  };
  ASSERT_TRUE(cluster.until(done));
  for (const auto& party : cluster) expect_in_order(*party);
  const auto lent_to = [&](const Party& party) {
    return std::count_if(party.arrivals.begin(), party.arrivals.end(), [](const auto& each) { return each.lent; });
  };
  int lent = 0;
  int answers = 0;
  for (const auto& party : cluster) {
    lent += static_cast<int>(lent_to(*party));
    answers += party->answers;
  }
  EXPECT_EQ(answers, lent) << "what is lent here is offered";
  EXPECT_EQ(answers > 0, !kind().name.starts_with("tcp"));
}

TEST_P(EveryTransport, IsReadableWhereItSleeps) {
  Cluster cluster(kind(), 2);
  if (cluster[1].transport().descriptor() < 0) return;  // its bell rings instead
  cluster[0].send(1, 1000);
  ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, 0) && cluster[1].arrivals.size() == 1; }));
  cluster.idle();
  std::thread receiver([&] {
    pollfd wait{.fd = cluster[1].transport().descriptor(), .events = POLLIN, .revents = 0};
    while (cluster[1].arrivals.size() < 101) {
      if (::poll(&wait, 1, 10000) != 1) break;
      cluster[1].transport().progress();
    }
  });
  for (int i = 0; i < 100; ++i) {
    cluster[0].send(1, std::size_t{100} * i);
    std::this_thread::sleep_for(std::chrono::microseconds(i % 3 * 100));
  }
  receiver.join();
  EXPECT_EQ(cluster[1].arrivals.size(), 101);
}

TEST_P(EveryTransport, MovesNothingWhenThereIsNothing) {
  Cluster cluster(kind(), 3);
  every_pair(cluster, [&](Party& from, int to) { from.send(to, 100); });
  ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, 1); }));
  cluster.idle();
  for (const auto& party : cluster) {
    for (int i = 0; i < 100; ++i) EXPECT_FALSE(party->transport().progress());
  }
}

TEST_P(EveryTransport, LosesNobodyWhenAllClose) {
  for (const int ranks : kRanks) {
    Cluster cluster(kind(), ranks);
    every_pair(cluster, [&](Party& from, int to) { from.send(to, 1000); });
    ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, 1); }));
    for (const auto& party : cluster) {
      party->transport().close();
      cluster.idle(std::chrono::milliseconds(5));
    }
    cluster.idle();
    expect_nobody_lost(cluster);
    // Each hears of those that closed before it, once.
    for (const auto& party : cluster) EXPECT_EQ(party->goodbyes.size(), party->rank());
  }
}

TEST_P(EveryTransport, BringsWhatWasPostedBeforeClose) {
  Cluster cluster(kind(), 2);
  std::atomic<bool> over = false;
  cluster.on_threads([&](Party& party) {
    if (party.rank() == 0) {
      for (int i = 0; i < 20; ++i) party.send(1, 1000 + i);
      party.transport().close();
      over = true;
    } else {
      EXPECT_TRUE(Cluster::until(party, [&] { return over && party.goodbyes.size() == 1; }));
    }
  });
  EXPECT_EQ(cluster[1].arrivals.size(), 20);
  expect_in_order(cluster[1]);
  expect_nobody_lost(cluster);
}

TEST_P(EveryTransport, TellsOfALostPeerOnce) {
  if (!kind().notices_death) return;
  for (const bool both_ways : {false, true}) {
    Cluster cluster(kind(), 4);
    const auto connected = [&](Party& from, int to) {
      if (both_ways || from.rank() > to) from.send(to, 1000);
    };
    every_pair(cluster, connected);
    ASSERT_TRUE(cluster.until([&] { return all_arrived(cluster, 0); }));
    cluster.idle();
    cluster.kill(1);
    const auto told = [&] {
      return !cluster[0].losses.empty() && !cluster[2].losses.empty() && !cluster[3].losses.empty();
    };
    ASSERT_TRUE(cluster.until(told));
    for (const int rank : {0, 2, 3}) cluster[rank].send(1, 10);  // in vain, but without harm
    cluster.idle();
    for (const int rank : {0, 2, 3}) {
      ASSERT_EQ(cluster[rank].losses.size(), 1);
      EXPECT_EQ(cluster[rank].losses[0].first, 1);
      EXPECT_NE(cluster[rank].losses[0].second, "");
    }
    // The others go on.
    const std::size_t before = cluster[3].arrivals.size();
    cluster[0].send(3, 5000);
    cluster[2].send(3, 5000);
    ASSERT_TRUE(cluster.until([&] { return cluster[3].arrivals.size() == before + 2; }));
  }
}

}  // namespace

}  // namespace trireme::test
