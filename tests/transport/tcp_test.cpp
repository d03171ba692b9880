// What is TCP's own: when connections are made, how they end, and what is refused.
#include "support/random.h"
#include "support/throws.h"
#include "transport/tcp_cluster.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace trireme::test {

namespace {

using transport::Tcp;

TEST(Tcp, ConnectsOnlyWhoTalks) {
  TcpCluster cluster(4);
  cluster.idle();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(cluster.counts(rank).dialled, 0);
  cluster[0].send(1, 100);
  cluster[0].send(1, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 2));
  // The answer takes the same connection.
  cluster[1].send(0, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[0], 1));
  EXPECT_EQ(cluster.counts(0).dialled, 1);
  EXPECT_EQ(cluster.counts(1).accepted, 1);
  EXPECT_EQ(cluster.counts(1).dialled, 0);
  for (const int rank : {2, 3}) {
    EXPECT_EQ(cluster.counts(rank).dialled, 0);
    EXPECT_EQ(cluster.counts(rank).accepted, 0);
  }
}

TEST(Tcp, SettlesOnOneConnectionWhenBothDial) {
  for (int round = 0; round < 20; ++round) {
    TcpCluster cluster(5);
    for (const auto& from : cluster) {
      for (int to = 0; to < 5; ++to) {
        if (to != from->rank()) from->send(to, 3000, 2);
      }
    }
    for (int rank = 0; rank < 5; ++rank) ASSERT_TRUE(cluster.until_sent(cluster[rank], 4));
    cluster.idle(std::chrono::milliseconds(2));
    int accepted = 0;
    for (int rank = 0; rank < 5; ++rank) {
      accepted += cluster.counts(rank).accepted;
      EXPECT_EQ(cluster.counts(rank).strangers, 0);
      EXPECT_TRUE(cluster[rank].losses.empty());
    }
    EXPECT_EQ(accepted, 10);
  }
}

TEST(Tcp, SettlesOnOneConnectionWhenThreadsDialAtOnce) {
  for (int round = 0; round < 10 * kEffort; ++round) {
    TcpCluster cluster(2);
    cluster.on_threads([&](Party& party) {
      party.send(1 - party.rank(), 3000);
      EXPECT_TRUE(Cluster::until(party, [&] { return party.arrivals.size() == 1 && party.under_way() == 0; }));
    });
    EXPECT_EQ(cluster.counts(0).accepted + cluster.counts(1).accepted, 1);
    EXPECT_TRUE(cluster[0].losses.empty() && cluster[1].losses.empty());
  }
}

TEST(Tcp, SpreadsSegmentsOverConnections) {
  TcpCluster cluster(2, 3);
  for (int i = 0; i < 30; ++i) cluster[0].send(1, 1000, 1, Sending::copied, i % 2);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 30));
  EXPECT_EQ(cluster.counts(0).dialled, 2);  // no message had a segment for the third
  cluster[0].send(1, 1000, 1, Sending::copied, 5);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 31));
  EXPECT_EQ(cluster.counts(0).dialled, 3);
  EXPECT_EQ(cluster.counts(1).accepted, 3);
}

TEST(Tcp, WaitsForAPeerThatIsLate) {
  TcpCluster cluster(2);
  for (int i = 0; i < 50; ++i) cluster[0].send(1, 100000, 2);
  const auto late = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < late) cluster.tcp(0).progress();
  EXPECT_EQ(cluster[0].under_way(), 50);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 50));
}

// Its buffer grows as it comes.
TEST(Tcp, BringsLongMessagesThatHaveNoPlace) {
  for (const bool encrypt : {false, true}) {
    TcpCluster cluster(2, 1, "127.0.0.1", guarded(encrypt));
    const std::size_t mebibyte = std::size_t{1} << 20;
    for (const std::size_t bytes : {4 * mebibyte, 4 * mebibyte + 1, 16 * mebibyte, 16 * mebibyte + 1, 70 * mebibyte}) {
      cluster[0].send(1, bytes);
      cluster[0].send(1, 10);
    }
    ASSERT_TRUE(cluster.until_sent(cluster[1], 10));
  }
}

// Wherever they lie in memory, and wherever they go.
TEST(Tcp, BringsMessagesFromAnyAddress) {
  constexpr std::array<std::size_t, 10> kSizes{1, 100, 4095, 4096, 4100, 20000, 65536, 70001, 262144, 300000};
  for (const bool encrypt : {false, true}) {
    TcpCluster cluster(2, 1, "127.0.0.1", guarded(encrypt));
    Random random(4);
    std::vector<std::vector<std::byte>> memory;
    cluster[0].memory = [&](std::size_t bytes) {
      return std::span(memory.emplace_back(bytes + 64)).subspan(random.below(64), bytes);
    };
    cluster[1].pieces_to_place = [&](int, const Envelope&) { return random.below(4); };
    for (std::size_t i = 0; i < 300; ++i) {
      const std::size_t bytes = random.chance(4) ? 0 : kSizes[random.below(kSizes.size())];
      cluster[0].send(1, bytes, random.between(1, 3), Sending::lent);
      if (random.chance(2)) {
        ASSERT_TRUE(cluster.until_sent(cluster[1], i + 1));
      }
    }
    ASSERT_TRUE(cluster.until_sent(cluster[1], 300));
  }
}

// It would keep them open when this process has died.
TEST(Tcp, IsNotKeptByWhatThisProcessForks) {
  const auto listener = transport::listen_at(transport::Address::parse("127.0.0.1", 0));
  const auto dialled = transport::begin_connection(transport::Address::of(listener));
  transport::Descriptor accepted;
  while (!accepted) accepted = transport::accept_connection(listener);
  const pid_t child = ::fork();
  if (child == 0) {
    bool kept = false;
    for (const int fd : {listener.get(), dialled.get(), accepted.get()}) kept |= ::fcntl(fd, F_GETFD) >= 0;
    ::_exit(kept ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (const int fd : {listener.get(), dialled.get(), accepted.get()}) EXPECT_GE(::fcntl(fd, F_GETFD), 0);
}

TEST(Tcp, SpeaksIPv6) {
  try {
    transport::listen_at(transport::Address::parse("::1", 0));
  } catch (const SystemError&) {
    GTEST_SKIP() << "this machine has no IPv6 loopback";
  }
  TcpCluster cluster(2, 1, "::1");
  EXPECT_TRUE(cluster.tcp(0).address().starts_with("[::1]:"));
  cluster[0].send(1, 5000, 2);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 1));
}

TEST(Tcp, SaysWhenNobodyIsThere) {
  TcpCluster cluster(2);
  cluster.kill(1);
  cluster[0].send(1, 100);
  ASSERT_TRUE(cluster.until([&] { return !cluster[0].losses.empty(); }));
  EXPECT_TRUE(says(cluster[0].losses[0].second, "could not connect to 127.0.0.1:"));
  EXPECT_TRUE(says(cluster[0].losses[0].second, "Connection refused"));
  cluster[0].send(1, 100);
  cluster.idle();
  EXPECT_EQ(cluster[0].losses.size(), 1);
}

TEST(Tcp, SaysHowAPeerEnded) {
  TcpCluster cluster(2);
  cluster[1].send(0, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[0], 1));
  cluster.kill(1);
  ASSERT_TRUE(cluster.until([&] { return !cluster[0].losses.empty(); }));
  EXPECT_TRUE(says(cluster[0].losses[0].second, "closed the connection without saying goodbye (127.0.0.1:"));
}

TEST(Tcp, BringsWhatCameBeforeTheEnd) {
  TcpCluster cluster(2);
  cluster[1].send(0, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[0], 1));
  for (int i = 0; i < 20; ++i) cluster[1].send(0, 2000);
  ASSERT_EQ(cluster[1].under_way(), 0);
  cluster.kill(1);
  ASSERT_TRUE(cluster.until([&] { return !cluster[0].losses.empty(); }));
  EXPECT_EQ(cluster[0].arrivals.size(), 21);
}

TEST(Tcp, LosesWhoClosedBeforeAllWasSentToIt) {
  TcpCluster cluster(2);
  cluster[0].send(1, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 1));
  cluster.tcp(1).close();
  ASSERT_TRUE(cluster.until([&] { return !cluster[0].goodbyes.empty(); }));
  EXPECT_TRUE(cluster[0].losses.empty());
  cluster[0].send(1, 100);
  ASSERT_EQ(cluster[0].losses.size(), 1);
  EXPECT_TRUE(says(cluster[0].losses[0].second, "said goodbye before"));
}

TEST(Tcp, ClosesInTimeWhenThePeerDoesNotRead) {
  TcpCluster cluster(2);
  cluster[0].send(1, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 1));
  for (int i = 0; i < 100; ++i) cluster[0].send(1, 1 << 20);
  const auto start = std::chrono::steady_clock::now();
  cluster.tcp(0).close();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  ASSERT_TRUE(cluster.until([&] { return !cluster[1].losses.empty(); }));
}

TEST(Tcp, NeverCallsTheInboxFromWithinItsOwnCalls) {
  TcpCluster cluster(2);
  bool inside = false;
  int depth_seen = 0;
  cluster[0].when_arrived = [&](int peer, const Envelope&) {
    inside = true;
    for (int i = 0; i < 3; ++i) cluster[0].send(peer, 10);
    inside = false;
  };
  cluster[0].when_sent = [&] { depth_seen += inside ? 1 : 0; };
  for (int i = 0; i < 10; ++i) cluster[1].send(0, 10);
  ASSERT_TRUE(cluster.until_sent(cluster[1], 30));
  EXPECT_EQ(depth_seen, 0);
}

TEST(Tcp, WakesForAForeignEvent) {
  TcpCluster cluster(2);
  const transport::Descriptor bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  cluster.tcp(0).watch(bell.get());
  cluster[1].send(0, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[0], 1));
  cluster.idle();
  pollfd wait{.fd = cluster.tcp(0).descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&wait, 1, 0), 0);
  const std::uint64_t once = 1;
  ASSERT_EQ(::write(bell.get(), &once, sizeof once), static_cast<ssize_t>(sizeof once));
  EXPECT_EQ(::poll(&wait, 1, 1000), 1);
  cluster.idle();
  EXPECT_EQ(::poll(&wait, 1, 0), 0);
}

TEST(Tcp, WaitsForAMessageButNotForEver) {
  TcpCluster cluster(2);
  cluster[1].send(0, 100);
  ASSERT_TRUE(cluster.until_sent(cluster[0], 1));
  cluster.idle();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(cluster.tcp(0).wait(std::chrono::milliseconds(20)));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(19));
  cluster[1].send(0, 100);
  EXPECT_TRUE(cluster.tcp(0).wait(std::chrono::seconds(20)));
  EXPECT_EQ(cluster[0].arrivals.size(), 2);
}

TEST(Tcp, RefusesWhatCantBe) {
  Party party(0);
  const auto make = [&](int rank, const std::string& address, int connections) {
    return usage_error([&] { Tcp(rank, 2, party, address, kJob, connections); });
  };
  EXPECT_TRUE(says(make(0, "localhost", 1), "\"localhost\" is not a numeric IPv4 or IPv6 address"));
  EXPECT_TRUE(says(make(0, "", 1), "is not a numeric"));
  EXPECT_TRUE(says(make(2, "127.0.0.1", 1), "There is no rank 2 of 2"));
  EXPECT_TRUE(says(make(0, "127.0.0.1", 0), "can't have 0 connections"));
  EXPECT_THROW(Tcp(0, 2, party, "192.0.2.1", kJob), SystemError);

  Tcp tcp(0, 2, party, "127.0.0.1", kJob);
  party.use(&tcp);
  EXPECT_TRUE(says(usage_error([&] { party.send(0, 1); }), "can't send from rank 0 to rank 0"));
  EXPECT_TRUE(says(usage_error([&] { party.send(2, 1); }), "to rank 2"));
  EXPECT_TRUE(says(usage_error([&] { party.send(1, 1); }), "does not know where rank 1 is"));
  EXPECT_TRUE(says(usage_error([&] { tcp.meet({""}); }), "1 addresses for 2 ranks"));
  for (const char* bad : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:1x", "::1:80",
                          "[::1]", "[]:80", "host:80", ":80"}) {
    EXPECT_TRUE(says(protocol_error([&] {
                       tcp.meet({"", bad});
                     }),
                     "rank 1 announced an address that makes no sense"))
        << bad;
  }
  Outgoing too_long{.peer = 1, .envelope = {}, .pieces = {}};
  std::byte byte{};
  const Piece piece{&byte, transport::wire::kMostBytes + 1};
  too_long.pieces = {&piece, 1};
  EXPECT_TRUE(says(usage_error([&] { tcp.post(too_long); }), "longer than TCP takes"));
  tcp.close();
  EXPECT_TRUE(says(usage_error([&] { party.send(1, 1); }), "closed"));
  EXPECT_FALSE(tcp.progress());
  tcp.close();
}

}  // namespace

}  // namespace trireme::test
