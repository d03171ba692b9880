// Ranks that meet and exchange, as they should: few and many, early and late, over IPv4 and IPv6.
#include "ranks.h"
#include "support/random.h"
#include "trireme/error.h"

#include <gtest/gtest.h>

#include <ctime>
#include <optional>
#include <string>
#include <sys/resource.h>

namespace trireme::rendezvous {
namespace {

void check_round(Client& client, int rank, int ranks, int round, std::size_t most_bytes) {
  const auto blobs = client.exchange(payload(rank, round, most_bytes), soon());
  ASSERT_EQ(blobs.size(), static_cast<std::size_t>(ranks));
  for (int peer = 0; peer < ranks; ++peer) {
    ASSERT_EQ(blobs[peer], payload(peer, round, most_bytes)) << "round " << round << ", from rank " << peer;
  }
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << "rank " << rank;
}

TEST(Exchange, GivesAllToAllInManyRounds) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Server server("127.0.0.1", 0, ranks);
    expect_no_errors(on_ranks(ranks, [&](int rank) {
      Client client(place_at(server.port(), rank, ranks), 10s);
      for (int round = 0; round < 30; ++round) check_round(client, rank, ranks, round, 300);
    }));
  }
}

TEST(Exchange, CarriesNothingAndMebibytes) {
  Server server("127.0.0.1", 0, 5);
  expect_no_errors(on_ranks(5, [&](int rank) {
    Client client(place_at(server.port(), rank, 5), 10s);
    for (const auto& blob : client.exchange("", soon())) EXPECT_EQ(blob, "");
    const std::string mine(std::size_t{1} << 20, static_cast<char>('a' + rank));
    for (int round = 0; round < 3; ++round) {
      const auto blobs = client.exchange(mine, soon());
      for (int peer = 0; peer < 5; ++peer) {
        ASSERT_EQ(blobs[peer], std::string(std::size_t{1} << 20, static_cast<char>('a' + peer)));
      }
    }
    check_round(client, rank, 5, 7, std::size_t{3} << 20);
  }));
}

TEST(Exchange, RefusesMoreThanItCarries) {
  Server server("127.0.0.1", 0, 1);
  Client client(place_at(server.port(), 0, 1), 10s);
  const std::string much(kMostBlobBytes + 1, 'x');
  expect_in(message_of<UsageError>([&] { client.exchange(much, soon()); }), {"too many"});
  EXPECT_EQ(client.exchange("still there", soon()).front(), "still there");
}

TEST(Exchange, HoldsHundredsOfRanks) {
  const int ranks = 300;
  Server server("127.0.0.1", 0, ranks);
  expect_no_errors(on_ranks(ranks, [&](int rank) {
    Client client(place_at(server.port(), rank, ranks), 60s);
    for (int round = 0; round < 3; ++round) check_round(client, rank, ranks, round, 200);
  }));
}

// Both ends of all connections are in this process.
void allow_many_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(Exchange, HoldsAThousandRanksInAFewSeconds) {
  const int ranks = 1000;
  const auto patience = test::kEffort == 1 ? 300s : 60s;
  allow_many_files();
  const auto start = Clock::now();
  Server server("127.0.0.1", 0, ranks);
  expect_no_errors(on_ranks(ranks, [&](int rank) {
    Client client(place_at(server.port(), rank, ranks), patience);
    for (int round = 0; round < 4; ++round) check_round(client, rank, ranks, round, 200);
  }));
  const std::chrono::duration<double> taken = Clock::now() - start;
  RecordProperty("seconds", std::to_string(taken.count()));
  // A few seconds, where others, and sanitizers, leave the machine alone.
  if (test::kEffort > 1) {
    EXPECT_LT(taken.count(), 30);
  }
}

TEST(Exchange, WaitsForALateServerAndALateRank) {
  // A port that was free a moment ago.
  const std::uint16_t port = std::optional<Server>(std::in_place, "127.0.0.1", 0, 1)->port();
  std::optional<Server> server;
  std::thread late([&] {
    std::this_thread::sleep_for(300ms);
    server.emplace("127.0.0.1", port, 3);
  });
  expect_no_errors(on_ranks(3, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(600ms);
    Client client(place_at(port, rank, 3), 20s);
    check_round(client, rank, 3, 0, 100);
    if (rank == 1) std::this_thread::sleep_for(200ms);
    check_round(client, rank, 3, 1, 100);
  }));
  late.join();
}

TEST(Exchange, KnowsWhoIsAwaited) {
  const Server server("127.0.0.1", 0, 3, Meetings::many);
  EXPECT_EQ(server.awaited(), std::vector<int>());
  std::vector<std::unique_ptr<Client>> clients;
  for (const int rank : {2, 0}) {
    clients.push_back(std::make_unique<Client>(place_at(server.port(), rank, 3), 20s));
  }
  EXPECT_EQ(server.awaited(), std::vector{1});
  clients.push_back(std::make_unique<Client>(place_at(server.port(), 1, 3), 20s));
  EXPECT_EQ(server.awaited(), std::vector<int>()) << "nobody waits yet";
  std::thread two([&] { clients[0]->exchange("two", soon()); });
  while (server.awaited().empty()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(server.awaited(), (std::vector{0, 1}));
  std::thread one([&] { clients[2]->exchange("one", soon()); });
  while (server.awaited().size() == 2) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(server.awaited(), std::vector{0});
  clients[1]->exchange("zero", soon());
  one.join();
  two.join();
  EXPECT_EQ(server.awaited(), std::vector<int>());
}

TEST(Exchange, WorksOverIPv6AndByName) {
  for (const char* const host : {"::1", "localhost", "127.0.0.2"}) {
    SCOPED_TRACE(host);
    Server server(host, 0, 3);
    expect_no_errors(on_ranks(3, [&](int rank) {
      Client client(place_at(server.port(), rank, 3, host), 10s);
      check_round(client, rank, 3, 0, 100);
      EXPECT_EQ(client.local_address(), client.server_address() == "::1" ? "::1" : "127.0.0.1");
    }));
  }
}

TEST(Exchange, IsServedOnAllAddressesWhereThatIsAskedFor) {
  Server server("", 0, 2);
  expect_no_errors(on_ranks(2, [&](int rank) {
    const std::string host = rank == 0 ? "127.0.0.1" : "::1";
    Client client(place_at(server.port(), rank, 2, host), 10s);
    check_round(client, rank, 2, 0, 100);
    EXPECT_EQ(client.local_address(), host);
  }));
}

// As rank 0 does that was started with MASTER_ADDR and MASTER_PORT, again and again in one program.
TEST(Exchange, IsServedByRankZeroAgainAndAgain) {
  const std::uint16_t port = std::optional<Server>(std::in_place, "127.0.0.1", 0, 1)->port();
  expect_no_errors(on_ranks(4, [&](int rank) {
    for (int time = 0; time < 5; ++time) {
      Place place = place_at(port, rank, 4);
      place.serve = rank == 0;
      const auto server = serve(place);
      EXPECT_EQ(server != nullptr, rank == 0);
      Client client(place, 20s);
      check_round(client, rank, 4, time, 100);
      if (rank == time) std::this_thread::sleep_for(50ms);
    }
  }));
}

// As programs do that `trireme run` starts one after the other.
TEST(Exchange, MeetsManyTimesAtALauncher) {
  Server server("127.0.0.1", 0, 4, Meetings::many, "trireme run");
  expect_no_errors(on_ranks(4, [&](int rank) {
    for (int time = 0; time < 20; ++time) {
      Client client(place_at(server.port(), rank, 4), 20s);
      check_round(client, rank, 4, time, 100);
    }
  }));
}

TEST(Exchange, NeedsNoProcessorWhileItWaits) {
  Server server("127.0.0.1", 0, 2);
  Client client(place_at(server.port(), 0, 2), 10s);
  const Stranger silent(server.port());
  const auto used = [] {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  const auto before = used();
  expect_in(message_of<TimeoutError>([&] { client.exchange("", Clock::now() + 1s); }), {"rank 1 has not come"});
  EXPECT_LT(used() - before, 100ms);
}

}  // namespace
}  // namespace trireme::rendezvous
