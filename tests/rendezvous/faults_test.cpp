// Ranks that are missing, contradict each other or die, and strangers: who is told what, and how soon.
#include "base/build.h"
#include "ranks.h"
#include "rendezvous/wire.h"
#include "trireme/error.h"

#include <gtest/gtest.h>

#include <barrier>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>

namespace trireme::rendezvous {
namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string hello(std::uint32_t rank, std::uint32_t ranks, std::uint32_t version = kVersion) {
  return frame(
      Hello{.version = version, .build = "a stranger's build", .rank = rank, .ranks = ranks, .who = "a stranger"});
}

// Also where the port follows from a job's number, and nobody has chosen it.
TEST(Serve, SaysHowToChooseAnotherPort) {
  const Server other("127.0.0.1", 0, 1);
  const Place place{.rank = 0, .ranks = 2, .host = "127.0.0.1", .port = other.port(), .serve = true};
  expect_in(message_of<SystemError>([&] { serve(place); }),
            {"has that port: choose another", "MASTER_ADDR, the host of rank 0 (127.0.0.1), and MASTER_PORT"});
}

TEST(Missing, ServerGivesATimeoutThatSaysWhereAndWhatToCheck) {
  const std::uint16_t port = std::optional<Server>(std::in_place, "127.0.0.1", 0, 1)->port();
  const auto start = Clock::now();
  const std::string message = message_of<TimeoutError>([&] { Client(place_at(port, 2, 4), 400ms); });
  EXPECT_LT(seconds_since(start), 30);
  expect_in(message, {"rank 2", "127.0.0.1:" + std::to_string(port), "0.4 s", "refused", "MASTER_ADDR", "firewall"});
  Place launched = place_at(port, 2, 4);
  launched.started_by = "trireme run";
  expect_in(message_of<TimeoutError>([&] { Client(launched, 0ms); }), {"'trireme run' is still there"});
  expect_in(message_of<TimeoutError>([&] { Client(place_at(port, 0, 1, "no-such-host.invalid"), 100ms); }),
            {"no-such-host.invalid"});
}

// Who serves would find itself at once: the address is another host's, and nobody need wait to be told.
TEST(Missing, AddressOfRankZeroIsSaidLongBeforeItsPatienceEnds) {
  const std::uint16_t port = std::optional<Server>(std::in_place, "127.0.0.1", 0, 1)->port();
  Place place = place_at(port, 0, 4);
  place.serve = true;
  const auto start = Clock::now();
  expect_in(message_of<TimeoutError>([&] { Client(place, 300s); }),
            {"within 15 s", "MASTER_ADDR has to be a name or an address of this host"});
  EXPECT_LT(seconds_since(start), 60);
}

TEST(Missing, AnswerGivesATimeoutToo) {
  const Descriptor mute = listen_at("127.0.0.1", 0);
  expect_in(message_of<TimeoutError>([&] { Client(place_at(local_port(mute), 0, 1), 300ms); }), {"does not answer"});
}

TEST(Missing, RanksAreNamedToAll) {
  Server server("127.0.0.1", 0, 9);
  std::barrier come(5);
  const auto start = Clock::now();
  const auto errors = on_ranks(9, [&](int rank) {
    if (rank == 2 || rank >= 6) return;
    Client client(place_at(server.port(), rank, 9), 10s);
    come.arrive_and_wait();
    const std::string message =
        message_of<TimeoutError>([&] { client.exchange("", rank == 0 ? Clock::now() + 500ms : soon()); });
    expect_in(message, {"exchange 0", "ranks 2 and 6 to 8 have not come"});
    if (rank != 0) expect_in(message, {"rank 0 (", "gave up"});
    EXPECT_EQ(message_of<TimeoutError>([&] { client.exchange("", soon()); }), message);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_LT(seconds_since(start), 30);
  // Who comes now is told as well.
  Client late(place_at(server.port(), 7, 9), 10s);
  expect_in(message_of<TimeoutError>([&] { late.exchange("", soon()); }), {"ranks 2 and 6 to 8 have not come"});
}

TEST(Missing, RankThatEndedBeforeItCameIsToldToThoseThatWaitAndThoseThatCome) {
  Server server("127.0.0.1", 0, 3, Meetings::many);
  const auto start = Clock::now();
  const auto errors = on_ranks(3, [&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(100ms);
      server.tell_ended(1, "pid 17", "exited with status 0");
      return;
    }
    if (rank == 2) std::this_thread::sleep_for(300ms);
    Client client(place_at(server.port(), rank, 3), 10s);
    expect_in(message_of<PeerError>([&] { client.exchange("", soon()); }),
              {"rank 1 (pid 17) exited with status 0 before it came"});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_LT(seconds_since(start), 30);
}

TEST(Missing, RankThatEndedAfterItHadComeIsNoTrouble) {
  Server server("127.0.0.1", 0, 2, Meetings::many);
  const auto errors = on_ranks(2, [&](int rank) {
    Client client(place_at(server.port(), rank, 2), 10s);
    client.exchange("", soon());
    if (rank == 1) server.tell_ended(1, "pid 17", "exited with status 0");
    client.exchange("", soon());
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Missing, RankThatIsThereButNotInTheExchangeIsNamed) {
  Server server("127.0.0.1", 0, 2);
  Client client(place_at(server.port(), 0, 2), 10s);
  Client idle(place_at(server.port(), 1, 2), 10s);
  const std::string message = message_of<TimeoutError>([&] { client.exchange("", Clock::now() + 100ms); });
  expect_in(message, {"rank 1 (" + this_process() + ") has come, but not to exchange 0", "0.1"});
  expect_in(message_of<TimeoutError>([&] { idle.exchange("", soon()); }), {"rank 0 (", "gave up", "rank 1 ("});
}

// The exchange is complete at about the deadline: either way, nothing is mixed up.
TEST(Missing, AnswersThatComeAtTheDeadlineAreTaken) {
  for (int time = 0; time < 50; ++time) {
    Server server("127.0.0.1", 0, 2);
    on_ranks(2, [&](int rank) {
      Client client(place_at(server.port(), rank, 2), 10s);
      if (rank == 1) std::this_thread::sleep_for(1ms);
      for (int round = 0; round < 3; ++round) {
        const auto blobs = client.exchange(payload(rank, round, 50), rank == 0 ? Clock::now() + 1ms : soon());
        for (int peer = 0; peer < 2; ++peer) EXPECT_EQ(blobs[peer], payload(peer, round, 50));
      }
    });
  }
}

// Ranks that were started one by one all hear of it, and wait for nobody.
TEST(Contradiction, EndsAMeetingAtRankZero) {
  for (const bool sizes : {true, false}) {
    for (const bool comes_first : {true, false}) {
      Server server("127.0.0.1", 0, 3);
      const auto wrong = [&] {
        const Place place = sizes ? place_at(server.port(), 2, 4) : place_at(server.port(), 1, 3);
        return message_of<UsageError>([&] { Client(place, 10s); });
      };
      const std::vector<std::string> words{sizes ? "was started as one of 4 (WORLD_SIZE)" : "says it is rank 1"};
      if (comes_first && sizes) expect_in(wrong(), words);
      Client zero(place_at(server.port(), 0, 3), 10s);
      Client one(place_at(server.port(), 1, 3), 10s);
      if (!comes_first || !sizes) expect_in(wrong(), words);
      expect_in(message_of<UsageError>([&] { zero.exchange("", soon()); }), words);
      expect_in(message_of<UsageError>([&] { one.exchange("", soon()); }), words);
    }
  }
}

// A launcher sees to it that each has a number of its own. What a rank starts in turn may have the same.
TEST(Contradiction, SameRankTwice) {
  Server server("127.0.0.1", 0, 2, Meetings::many);
  Client first(place_at(server.port(), 1, 2), 10s);
  expect_in(message_of<UsageError>([&] { Client(place_at(server.port(), 1, 2), 10s); }),
            {"says it is rank 1", "but " + this_process() + " is that already", "RANK"});
  std::thread other([&] { Client(place_at(server.port(), 0, 2), 10s).exchange("zero", soon()); });
  EXPECT_EQ(first.exchange("one", soon()), (std::vector<std::string>{"zero", "one"}));
  other.join();
}

TEST(Contradiction, WorldSizesDiffer) {
  Server server("127.0.0.1", 0, 2, Meetings::many, "trireme run");
  Client first(place_at(server.port(), 1, 2), 10s);
  expect_in(message_of<UsageError>([&] { Client(place_at(server.port(), 0, 3), 10s); }),
            {"rank 0 (" + this_process() + ") was started as one of 3 (WORLD_SIZE)",
             "trireme run (" + this_process() + ") expects 2"});
  expect_in(message_of<UsageError>([&] { Client(place_at(server.port(), 7, 2), 10s); }), {"rank 7", "among 2"});
  std::thread other([&] { Client(place_at(server.port(), 0, 2), 10s).exchange("zero", soon()); });
  EXPECT_EQ(first.exchange("one", soon()), (std::vector<std::string>{"zero", "one"}));
  other.join();
}

TEST(Contradiction, VersionsDiffer) {
  Server server("127.0.0.1", 0, 2);
  const Stranger stranger(server.port());
  stranger.send(hello(0, 2, kVersion + 1));
  stranger.finish();
  expect_in(stranger.hear(10s), {"a stranger's build (version " + std::to_string(kVersion + 1),
                                 std::string(build_name()) + " (version " + std::to_string(kVersion)});
  EXPECT_EQ(server.strangers(), 1);
}

TEST(Contradiction, RanksThatComeAndGoAloneAreRefusedInTheEnd) {
  Server server("127.0.0.1", 0, 2, Meetings::many, "trireme run");
  const std::string message = message_of<UsageError>([&] {
    for (int i = 0; i < 100; ++i) Client(place_at(server.port(), 0, 2), 10s);
  });
  expect_in(message, {"rank 0 has come and gone", "rank 1 has not come"});
}

TEST(Contradiction, ServersNeedRanksAndAFreePort) {
  EXPECT_THROW(Server("127.0.0.1", 0, 0), UsageError);
  expect_in(message_of<UsageError>([] { Server("127.0.0.1", 0, 1 << 30); }), {"ulimit -n"});
  const Server server("127.0.0.1", 0, 1);
  expect_in(message_of<SystemError>([&] { Server("127.0.0.1", server.port(), 1); }),
            {"127.0.0.1:" + std::to_string(server.port()), "in use", "another program"});
  expect_in(message_of<SystemError>([&] { Server("192.0.2.1", 0, 1); }), {"192.0.2.1", "not one of this machine's"});
}

TEST(Death, OfARankIsToldToThoseThatWaitAtOnce) {
  Server server("127.0.0.1", 0, 4);
  Stranger mortal(server.port());
  mortal.send(hello(2, 4));
  const auto start = Clock::now();
  const auto errors = on_ranks(4, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(200ms);
      mortal.hang_up();
      return;
    }
    Client client(place_at(server.port(), rank, 4), 10s);
    expect_in(message_of<PeerError>([&] { client.exchange("", soon()); }),
              {"rank 2 (a stranger) hung up without a goodbye"});
    EXPECT_THROW(client.exchange("", soon()), PeerError);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_LT(seconds_since(start), 30);
}

TEST(Death, IsToldAsWhoStartedTheRanksSaysThatItCameAbout) {
  for (const auto news_after : {0ms, 50ms}) {
    Server server("127.0.0.1", 0, 3, Meetings::many);
    Stranger mortal(server.port());
    mortal.send(hello(2, 3));
    const auto errors = on_ranks(3, [&](int rank) {
      if (rank == 2) {
        std::this_thread::sleep_for(100ms);
        mortal.hang_up();
        std::this_thread::sleep_for(news_after);
        server.tell_ended(2, "pid 17", "was killed by signal 9 (Killed)");
        return;
      }
      Client client(place_at(server.port(), rank, 3), 10s);
      EXPECT_EQ(message_of<PeerError>([&] { client.exchange("", soon()); }),
                "rank 2 (a stranger) was killed by signal 9 (Killed)");
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Death, IsToldSoonEvenIfNobodySaysHowItCameAbout) {
  Server server("127.0.0.1", 0, 2, Meetings::many);
  Stranger mortal(server.port());
  mortal.send(hello(1, 2));
  Client client(place_at(server.port(), 0, 2), 10s);
  mortal.hang_up();
  const auto start = Clock::now();
  expect_in(message_of<PeerError>([&] { client.exchange("", soon()); }),
            {"rank 1 (a stranger) hung up without a goodbye"});
  EXPECT_LT(seconds_since(start), 30);
}

int option_of(int socket, int level, int option) {
  int value = 0;
  socklen_t bytes = sizeof value;
  EXPECT_EQ(::getsockopt(socket, level, option, &value, &bytes), 0);
  return value;
}

// A port of a connection of this process; 0: the descriptor is none.
int port_of(int socket, decltype(::getpeername)* get) {
  sockaddr_in address{};
  socklen_t bytes = sizeof address;
  if (get(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 || address.sin_family != AF_INET) return 0;
  return ntohs(address.sin_port);
}

// A host that is cut off just says nothing: where nothing is sent, the system has to ask. The netlab's tests cut one.
TEST(Death, OfAHostIsLookedForAtBothEnds) {
  const Server server("127.0.0.1", 0, 2);
  const Client client(place_at(server.port(), 0, 2), 10s);
  int ends = 0;
  for (int socket = 0; socket < 1024; ++socket) {
    const int there = port_of(socket, ::getpeername);
    if (there == 0 || (there != server.port() && port_of(socket, ::getsockname) != server.port())) continue;
    ++ends;
    EXPECT_EQ(option_of(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_KEEPIDLE) +
                  option_of(socket, IPPROTO_TCP, TCP_KEEPINTVL) * option_of(socket, IPPROTO_TCP, TCP_KEEPCNT),
              8);
    EXPECT_EQ(option_of(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 8000);
  }
  EXPECT_EQ(ends, 2);
}

TEST(Death, BetweenExchangesIsToldAtTheNext) {
  Server server("127.0.0.1", 0, 2);
  Stranger mortal(server.port());
  mortal.send(hello(0, 2) + frame(Kind::blob, 0, "last words"));
  Client client(place_at(server.port(), 1, 2), 10s);
  EXPECT_EQ(client.exchange("", soon()).front(), "last words");
  mortal.hang_up();
  expect_in(message_of<PeerError>([&] { client.exchange("", soon()); }), {"rank 0 (a stranger) "});
}

TEST(Death, AGoodbyeBeforeTheLastExchangeIsOneToo) {
  Server server("127.0.0.1", 0, 3);
  const auto errors = on_ranks(3, [&](int rank) {
    Client client(place_at(server.port(), rank, 3), 10s);
    client.exchange("", soon());
    if (rank == 1) return;
    expect_in(message_of<PeerError>([&] { client.exchange("", soon()); }),
              {"rank 1 (" + this_process() + ") left before exchange 1"});
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Death, OfTheServerIsToldAtOnce) {
  auto server = std::make_unique<Server>("127.0.0.1", 0, 2, Meetings::many, "trireme run");
  Client client(place_at(server->port(), 0, 2), 10s);
  Client other(place_at(server->port(), 1, 2), 10s);
  std::thread end([&] {
    std::this_thread::sleep_for(100ms);
    server.reset();
  });
  const auto start = Clock::now();
  expect_in(message_of<PeerError>([&] { client.exchange("", soon()); }),
            {"trireme run (" + this_process() + "), which ran the rendezvous", "exchange 0"});
  EXPECT_LT(seconds_since(start), 30);
  end.join();
}

TEST(Death, OfARankThatServesNamesThoseWhoHadNotCome) {
  auto server = std::make_unique<Server>("127.0.0.1", 0, 3);
  auto client = std::make_unique<Client>(place_at(server->port(), 1, 3), 10s);
  const auto start = Clock::now();
  std::thread waiting([&] {
    expect_in(message_of<PeerError>([&] { client->exchange("", soon()); }),
              {"rank 0 (" + this_process() + ") ended the rendezvous", "ranks 0 and 2 have not come"});
    client.reset();
  });
  std::this_thread::sleep_for(100ms);
  server.reset();
  EXPECT_LT(seconds_since(start), 4);
  waiting.join();
}

// The server waits for those who were there, though not for ever.
TEST(Death, OfARankThatServesWaitsForGoodbyes) {
  auto server = std::make_unique<Server>("127.0.0.1", 0, 1);
  auto client = std::make_unique<Client>(place_at(server->port(), 0, 1), 10s);
  const auto start = Clock::now();
  std::thread leaving([&] {
    std::this_thread::sleep_for(500ms);
    EXPECT_EQ(client->exchange("still served", soon()).front(), "still served");
    client.reset();
  });
  server.reset();
  EXPECT_GT(seconds_since(start), 0.4);
  leaving.join();

  server = std::make_unique<Server>("127.0.0.1", 0, 1);
  const Client stays(place_at(server->port(), 0, 1), 10s);
  const auto again = Clock::now();
  server.reset();
  EXPECT_LT(seconds_since(again), 30);
}

// Messages that only a defect or an enemy sends: the one that sends them is sent away, and named to the others.
TEST(Garbage, FromARankIsToldToTheOthers) {
  std::string twice = hello(0, 2) + frame(Kind::blob, 0, "a") + frame(Kind::blob, 0, "b");
  std::string failure_without_type = hello(0, 2) + frame(Kind::gave_up, "abc");
  std::string claims = hello(0, 2);
  append_header(claims, Kind::blob, std::size_t{1} << 60);
  for (const std::string& bytes :
       {twice, failure_without_type, claims, hello(0, 2) + "what is this?", hello(0, 2) + hello(0, 2),
        hello(0, 2) + frame(Kind::blob, 7, ""), hello(0, 2) + frame(Kind::blob, "x"),
        hello(0, 2) + frame(Kind::ask, ""), hello(0, 2) + frame(Kind::blobs, "x"),
        hello(0, 2) + frame(Kind::gave_up, std::string("\xff\xff\xff\xff text"))}) {
    Server server("127.0.0.1", 0, 2);
    const Stranger stranger(server.port());
    stranger.send(bytes);
    Client client(place_at(server.port(), 1, 2), 10s);
    expect_in(message_of<PeerError>([&] { client.exchange("", soon()); }), {"rank 0 (a stranger) was sent away"});
    expect_in(stranger.hear(100ms), {"makes no sense"});
  }
}

TEST(Garbage, FromStrangersDisturbsNobody) {
  Server server("127.0.0.1", 0, 3);
  std::vector<std::string> lines{"",
                                 "x",
                                 "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                 std::string(100'000, '\xff'),
                                 frame(Kind::goodbye, ""),
                                 frame(Kind::hello, ""),
                                 frame(Kind::hello, "123"),
                                 frame(Kind::hello, std::string(2000, 'x')),
                                 hello(0, 3).substr(0, 20),
                                 hello(99, 3),
                                 hello(0xffffffff, 3),
                                 hello(0, 0),
                                 hello(0, 3, 77)};
  std::string claims;
  append_header(claims, Kind::hello, ~std::size_t{0});
  lines.push_back(claims);
  test::Random random(5);
  for (int i = 0; i < 50; ++i) {
    std::string noise = hello(static_cast<std::uint32_t>(random.below(3)), 3);
    char& byte = noise[static_cast<std::size_t>(random.below(24))];
    byte = static_cast<char>(byte ^ 1 << random.below(7));
    lines.push_back(noise.substr(0, 27));  // No hello of a rank, even if the change was harmless.
  }
  std::vector<Stranger> strangers;
  for (const std::string& line : lines) strangers.emplace_back(server.port()).send(line);
  const auto errors = on_ranks(3, [&](int rank) {
    Client client(place_at(server.port(), rank, 3), 10s);
    for (int round = 0; round < 5; ++round) {
      const auto blobs = client.exchange(payload(rank, round, 100), soon());
      for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(blobs[peer], payload(peer, round, 100));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Some hang up, some stay.
TEST(Garbage, FromThousandsOfStrangersDisturbsNobody) {
  Server server("127.0.0.1", 0, 2);
  const auto errors = on_ranks(3, [&](int rank) {
    if (rank == 2) {
      std::vector<Stranger> strangers;
      for (int i = 0; i < 5000; ++i) {
        if (strangers.size() == 400) strangers.erase(strangers.begin(), strangers.begin() + 200);
        strangers.emplace_back(server.port()).send("?");
      }
      return;
    }
    Client client(place_at(server.port(), rank, 2), 30s);
    for (int round = 0; round < 100; ++round) {
      EXPECT_EQ(client.exchange(std::to_string(rank), soon())[1 - rank], std::to_string(1 - rank));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Garbage, FromAServerIsAProtocolError) {
  const auto answered_with = [](const std::string& answer) {
    const Descriptor listener = listen_at("127.0.0.1", 0);
    std::thread server([&] { serve_once(listener, answer); });
    std::string message = message_of<ProtocolError>([&] {
      Client client(place_at(local_port(listener), 0, 2), 10s);
      client.exchange("", soon());
    });
    server.join();
    return message;
  };
  const std::string welcome = frame(Kind::welcome, "rank 0 (here)");
  std::string claims;
  append_header(claims, Kind::welcome, std::size_t{1} << 40);
  std::string lies;
  for (const std::uint32_t number : {0U, 2U, 5U, 0U, 0xffffffffU, 0xffffffffU}) append_u32(lies, number);
  std::string trails;
  for (const std::uint32_t number : {0U, 2U, 1U, 0U, 1U, 0U}) append_u32(trails, number);
  expect_in(answered_with("220 mail.example ESMTP ready\r\n"), {"is no rendezvous of Trireme"});
  expect_in(answered_with(claims), {"claims 1099511627776 bytes"});
  expect_in(answered_with(frame(Kind::blobs, "")), {"another kind"});
  expect_in(answered_with(welcome + frame(Kind::blobs, "")), {"shorter"});
  expect_in(answered_with(welcome + frame(Kind::blobs, 5, "")), {"another exchange"});
  expect_in(answered_with(welcome + frame(Kind::blobs, 0, "1234")), {"another number of ranks"});
  expect_in(answered_with(welcome + frame(Kind::blobs, lies)), {"shorter"});
  expect_in(answered_with(welcome + frame(Kind::blobs, trails + "abc")), {"longer"});
  expect_in(answered_with(welcome + frame(Kind::failure, "")), {"shorter"});
}

}  // namespace
}  // namespace trireme::rendezvous
