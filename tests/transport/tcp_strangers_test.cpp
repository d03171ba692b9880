// Bytes from the network that no rank of the job sent, or that a rank should not have sent.
#include "support/random.h"
#include "transport/tcp_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::test {

namespace {

using transport::wire::Header;
using transport::wire::Hello;
using transport::wire::Kind;
using transport::wire::Stage;

// The ranks of the job still talk, and nobody is lost.
void expect_all_is_well(TcpCluster& cluster) {
  const std::size_t before = cluster[1].arrivals.size();
  cluster[0].send(1, 1000);
  cluster[2].send(1, 1000);
  ASSERT_TRUE(cluster.until_sent(cluster[1], before + 2));
  for (const auto& party : cluster) EXPECT_TRUE(party->losses.empty());
}

TEST(TcpStrangers, AreDroppedAndCounted) {
  Random random(6);
  std::string noise(5000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random.below(256));
  const std::vector<std::string> said{noise, "GET / HTTP/1.1\r\nHost: trireme\r\n\r\n",
                                      std::string(sizeof(Hello), '\0'), "x"};
  TcpCluster cluster(3);
  int dropped = 0;
  for (const bool before_any_message : {true, false}) {
    for (const std::string& words : said) {
      const Stranger stranger(cluster.tcp(1).address());
      stranger.say(words);
      ASSERT_TRUE(cluster.until([&] { return stranger.dropped(); }));
      EXPECT_EQ(cluster.counts(1).strangers, ++dropped);
    }
    if (before_any_message) expect_all_is_well(cluster);
  }
  expect_all_is_well(cluster);
}

// As when a rank computes: nobody calls progress() there.
TEST(TcpStrangers, AreTurnedAwayAndPeersLetInAtTheDoorAlone) {
  TcpCluster cluster(2);
  transport::Tcp& tcp = cluster.tcp(1);
  pollfd door{.fd = tcp.door(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&door, 1, 0), 0);
  EXPECT_EQ(tcp.greet().again, std::chrono::steady_clock::time_point::max());
  const Stranger loud(tcp.address());
  const Stranger silent(tcp.address());
  loud.say("GET / HTTP/1.1");
  while (tcp.counts().strangers == 0) tcp.greet();
  EXPECT_TRUE(loud.dropped());
  while (!tcp.has_guests()) tcp.greet();
  const transport::Greeted greeted = tcp.greet();
  EXPECT_TRUE(greeted.open);
  EXPECT_FALSE(greeted.any);
  EXPECT_GT(greeted.again, std::chrono::steady_clock::now());
  EXPECT_LT(greeted.again, std::chrono::steady_clock::now() + std::chrono::seconds(6));
  bool sent = false;
  cluster[0].when_sent = [&] { sent = true; };
  cluster[0].send(1, 1000);
  while (!sent) {
    cluster.tcp(0).progress();
    tcp.greet();
  }
  EXPECT_EQ(tcp.counts().accepted, 1);
  EXPECT_TRUE(cluster[1].arrivals.empty()) << "it reads when it makes progress";
  ASSERT_TRUE(cluster.until([&] { return cluster[1].arrivals.size() == 1; }));
  tcp.close();
  EXPECT_FALSE(tcp.greet().open);
  EXPECT_LT(tcp.door(), 0);
}

TEST(TcpStrangers, WithHellosThatLieAreDropped) {
  const std::vector<std::function<void(Hello&)>> lies{
      [](Hello& hello) { ++hello.magic; },        [](Hello& hello) { ++hello.job; },
      [](Hello& hello) { hello.from = 3; },       [](Hello& hello) { hello.from = 0xffffffff; },
      [](Hello& hello) { hello.from = 1; },       [](Hello& hello) { hello.to = 2; },
      [](Hello& hello) { hello.ranks = 4; },      [](Hello& hello) { hello.connections = 2; },
      [](Hello& hello) { hello.connection = 1; },
  };
  TcpCluster cluster(3);
  int dropped = 0;
  for (const auto& lie : lies) {
    const Stranger stranger(cluster.tcp(1).address());
    Hello said = hello(0, 1, 3);
    lie(said);
    stranger.say(bytes_of(said));
    ASSERT_TRUE(cluster.until([&] { return stranger.dropped(); })) << dropped;
    EXPECT_EQ(cluster.counts(1).strangers, ++dropped);
  }
  expect_all_is_well(cluster);
}

TEST(TcpStrangers, CantTakeAPeersPlace) {
  TcpCluster cluster(3);
  expect_all_is_well(cluster);
  const Stranger stranger(cluster.tcp(1).address());
  stranger.say(bytes_of(hello(0, 1, 3)));
  ASSERT_TRUE(cluster.until([&] { return stranger.dropped(); }));
  EXPECT_EQ(cluster.counts(1).strangers, 1);
  expect_all_is_well(cluster);
}

TEST(TcpStrangers, HoldUpNobodyWithHalfAHello) {
  TcpCluster cluster(3);
  const std::string whole = bytes_of(hello(0, 1, 3));
  const Stranger silent(cluster.tcp(1).address());
  const Stranger slow(cluster.tcp(1).address());
  slow.say(whole.substr(0, 20));
  Stranger gone(cluster.tcp(1).address());
  gone.say(whole.substr(0, 159));
  expect_all_is_well(cluster);
  gone.hang_up();
  ASSERT_TRUE(cluster.until([&] { return cluster.counts(1).strangers == 1; }));
  // Those that say no more are dropped in the end.
  ASSERT_TRUE(cluster.until([&] { return silent.dropped() && slow.dropped(); }));
  EXPECT_EQ(cluster.counts(1).strangers, 3);
  expect_all_is_well(cluster);
}

TEST(TcpStrangers, MayBeMany) {
  TcpCluster cluster(3);
  std::vector<std::unique_ptr<Stranger>> crowd(350);
  for (auto& stranger : crowd) stranger = std::make_unique<Stranger>(cluster.tcp(1).address());
  expect_all_is_well(cluster);
  EXPECT_GE(cluster.counts(1).strangers, 50);
}

// A rank 0 that speaks byte by byte.
class TcpLiar : public ::testing::Test {
 protected:
  TcpLiar() : cluster_(3), liar_(cluster_.tcp(1).address()) {
    liar_.say(bytes_of(hello(0, 1, 3)));
    std::string answer;
    EXPECT_TRUE(cluster_.until([&] { return (answer += liar_.hear(sizeof(Hello))).size() >= sizeof(Hello); }));
    Hello expected = hello(1, 0, 3);
    expected.stage = Stage::answer;
    EXPECT_EQ(answer, bytes_of(expected));
  }

  // A message with this header's length, and this much of it.
  void begin_message(std::size_t bytes, std::size_t said) {
    const Header header{.bytes = bytes, .envelope = {.context = 0, .sequence = 1, .call = {bytes, mix(3, 0, 1, 0)}}};
    liar_.say(bytes_of(header));
    const auto payload = content(0, 1, 0, bytes);
    liar_.say({reinterpret_cast<const char*>(payload.data()), said});
  }

  // Rank 0 is lost for this reason, once, and the others go on.
  void expect_lost(const std::string& why) {
    ASSERT_TRUE(cluster_.until([&] { return !cluster_[1].losses.empty(); }));
    cluster_.idle();
    ASSERT_EQ(cluster_[1].losses.size(), 1);
    EXPECT_EQ(cluster_[1].losses[0].first, 0);
    EXPECT_TRUE(says(cluster_[1].losses[0].second, why));
    const std::size_t before = cluster_[1].arrivals.size();
    cluster_[2].send(1, 1000);
    ASSERT_TRUE(cluster_.until([&] { return cluster_[1].arrivals.size() == before + 1; }));
  }

  /// Says a message and a goodbye byte by byte.
  void expect_understood(std::string_view words) {
    for (const char byte : words) {
      liar_.say({&byte, 1});
      cluster_.idle(std::chrono::milliseconds(0));
    }
    ASSERT_TRUE(cluster_.until([&] { return cluster_[1].goodbyes.size() == 1; }));
    EXPECT_EQ(cluster_[1].arrivals.size(), 1);
    EXPECT_TRUE(cluster_[1].losses.empty());
  }

  TcpCluster cluster_;
  Stranger liar_;
};

TEST_F(TcpLiar, SpeaksTheTruthByteByByte) {
  std::string words =
      bytes_of(Header{.bytes = 100, .envelope = {.context = 0, .sequence = 1, .call = {100, mix(3, 0, 1, 0)}}});
  for (const std::byte byte : content(0, 1, 0, 100)) words += static_cast<char>(byte);
  words += bytes_of(Header{.kind = Kind::goodbye});
  expect_understood(words);
}

TEST_F(TcpLiar, MayFillUpTheStreamByteByByte) {
  std::string words = bytes_of(
      Header{.lead = 5, .tail = 31, .bytes = 100, .envelope = {.sequence = 1, .call = {100, mix(3, 0, 1, 0)}}});
  words += "12345";
  for (const std::byte byte : content(0, 1, 0, 100)) words += static_cast<char>(byte);
  words += std::string(31, 'x') + bytes_of(Header{.kind = Kind::goodbye});
  expect_understood(words);
}

TEST_F(TcpLiar, ClaimsTooMuchFillerBefore) {
  liar_.say(bytes_of(Header{.lead = transport::wire::kGrain, .bytes = 10}));
  expect_lost(
      "sent bytes that make no sense: a header of kind 0x47534d54 and 10 bytes, with 32 and 0 of filler around");
}

TEST_F(TcpLiar, ClaimsTooMuchFillerBehind) {
  liar_.say(bytes_of(Header{.tail = transport::wire::kGrain, .bytes = 10}));
  expect_lost(
      "sent bytes that make no sense: a header of kind 0x47534d54 and 10 bytes, with 0 and 32 of filler around");
}

TEST_F(TcpLiar, CutsFillerShort) {
  liar_.say(bytes_of(Header{.tail = 20, .bytes = 10}) + "ten bytes.and some");
  cluster_.idle();
  liar_.hang_up();
  expect_lost("closed the connection without saying goodbye, behind a message");
}

TEST_F(TcpLiar, CutsAPayloadShortThatFillerFollows) {
  liar_.say(bytes_of(Header{.lead = 7, .tail = 20, .bytes = 10}) + "fillingtwo");
  cluster_.idle();
  liar_.hang_up();
  expect_lost("closed the connection without saying goodbye, with 7 of a message's 10 bytes still to come");
}

TEST_F(TcpLiar, CutsAMessageShort) {
  begin_message(50000, 20000);
  cluster_.idle();
  liar_.hang_up();
  expect_lost("closed the connection without saying goodbye, with 30000 of a message's 50000 bytes still to come");
}

TEST_F(TcpLiar, CutsAHeaderShort) {
  liar_.say(bytes_of(Header{}).substr(0, 17));
  cluster_.idle();
  liar_.hang_up();
  expect_lost("in the middle of a header");
}

TEST_F(TcpLiar, CutsAPlacedMessageShort) {
  cluster_[1].pieces_to_place = [](int, const Envelope&) { return 3; };
  begin_message(50000, 20000);
  liar_.hang_up();
  expect_lost("with 30000 of a message's 50000 bytes still to come");
}

TEST_F(TcpLiar, ClaimsTooLongAMessage) {
  liar_.say(bytes_of(Header{.bytes = transport::wire::kMostBytes + 1}));
  expect_lost("sent bytes that make no sense");
}

TEST_F(TcpLiar, ClaimsALongMessageThatNeverComes) {
  begin_message(transport::wire::kMostBytes / 1024, 10);
  liar_.hang_up();
  expect_lost("bytes still to come");
}

TEST_F(TcpLiar, SendsNoise) {
  liar_.say(std::string(1000, 'x'));
  expect_lost("sent bytes that make no sense");
}

TEST_F(TcpLiar, SendsMoreBehindAGoodbye) {
  liar_.say(bytes_of(Header{.kind = Kind::goodbye}) + "and another thing");
  ASSERT_TRUE(cluster_.until([&] { return cluster_[1].goodbyes.size() == 1; }));
  cluster_.idle();
  EXPECT_TRUE(cluster_[1].losses.empty());
}

// What a rank might say, from its hello to its goodbye.
std::string good_stream(Random& random) {
  std::string stream = bytes_of(hello(0, 1, 2));
  for (int left = random.below(10); left > 0; --left) {
    const Header header{.lead = static_cast<std::uint16_t>(random.below(32)),
                        .tail = static_cast<std::uint16_t>(random.below(32)),
                        .bytes = static_cast<std::uint64_t>(random.below(random.chance(3) ? 30000 : 300)),
                        .envelope = {.index = static_cast<std::uint32_t>(left)}};
    stream += bytes_of(header);
    stream += std::string(header.lead + header.bytes + header.tail, static_cast<char>('a' + left));
  }
  return stream + bytes_of(Header{.kind = Kind::goodbye});
}

void spoil(std::string& stream, Random& random) {
  const int size = static_cast<int>(stream.size());
  const int at = random.chance(2) ? random.below(size) : random.below(std::min(size, 200));
  const int length = random.below(std::min(size - at, 100) + 1);
  switch (random.below(4)) {
    case 0: stream[at] = static_cast<char>(stream[at] ^ 1 << random.below(8)); break;
    case 1: stream.erase(at, length); break;
    case 2: stream.insert(at, stream.substr(at, length)); break;
    default: stream.resize(at + 1); break;
  }
}

// Whatever is said, it is understood, or it ends with the speaker dropped, lost or gone, and nothing else.
TEST(TcpStrangers, MaySayAnything) {
  for (int seed = 0; seed < 50 * kEffort; ++seed) {
    Random random(mix(7, seed));
    TcpCluster cluster(2);
    cluster.kill(0);
    cluster[1].checks = false;
    cluster[1].pieces_to_place = [&](int, const Envelope&) { return random.below(3); };
    std::string stream = good_stream(random);
    for (int times = random.below(4); times > 0; --times) spoil(stream, random);
    Stranger stranger(cluster.tcp(1).address());
    for (std::size_t said = 0; said < stream.size() && !stranger.dropped();) {
      const std::size_t bytes = std::min<std::size_t>(stream.size() - said, random.between(1, 20000));
      stranger.try_to_say({stream.data() + said, bytes});
      said += bytes;
      cluster.tcp(1).progress();
    }
    stranger.hang_up();
    const auto over = [&] {
      return cluster.counts(1).strangers + cluster[1].losses.size() + cluster[1].goodbyes.size() > 0;
    };
    ASSERT_TRUE(cluster.until(over)) << "seed " << seed;
    EXPECT_LE(cluster[1].losses.size() + cluster[1].goodbyes.size(), 1) << "seed " << seed;
  }
}

// Whoever answers must be the rank that was dialled.
TEST(TcpStrangers, CantAnswerForAPeer) {
  for (const std::string& answer : {std::string(sizeof(Hello), 'x'), bytes_of(hello(0, 1, 2)), std::string(3, 'x')}) {
    const auto listener = transport::listen_at(transport::Address::parse("127.0.0.1", 0));
    Party party(0);
    transport::Tcp tcp(0, 2, party, "127.0.0.1", kJob);
    tcp.meet({"", transport::Address::of(listener).text()});
    party.use(&tcp);
    party.send(1, 1000);
    transport::Descriptor accepted;
    ASSERT_TRUE(Cluster::until(party, [&] { return bool(accepted = transport::accept_connection(listener)); }));
    ASSERT_EQ(::send(accepted.get(), answer.data(), answer.size(), 0), static_cast<ssize_t>(answer.size()));
    ::shutdown(accepted.get(), SHUT_WR);
    ASSERT_TRUE(Cluster::until(party, [&] { return !party.losses.empty(); }));
    EXPECT_TRUE(says(party.losses[0].second, "could not connect to 127.0.0.1:"));
    EXPECT_TRUE(says(party.losses[0].second, "answer"));
  }
}

// A crowded door sends away whoever comes, ranks among them.
TEST(TcpStrangers, MayCrowdADoorForAWhile) {
  const auto listener = transport::listen_at(transport::Address::parse("127.0.0.1", 0));
  Party party(0), peer(1);
  transport::Tcp tcp(0, 2, party, "127.0.0.1", kJob), peers(1, 2, peer, "127.0.0.1", kJob);
  tcp.meet({"", transport::Address::of(listener).text()});
  peers.meet({tcp.address(), ""});
  party.use(&tcp);
  peer.use(&peers);
  party.send(1, 1000);
  transport::Descriptor accepted;
  constexpr int kSentAway = 5;
  for (int i = 0; i <= kSentAway; ++i) {
    accepted.reset();
    ASSERT_TRUE(Cluster::until(party, [&] { return bool(accepted = transport::accept_connection(listener)); }));
  }
  const Stranger onward(peers.address());
  ASSERT_TRUE(Cluster::until(party, [&] {
    std::array<char, 4096> bytes;
    const ssize_t count = ::recv(accepted.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) onward.say({bytes.data(), static_cast<std::size_t>(count)});
    const std::string back = onward.hear(bytes.size());
    EXPECT_EQ(::send(accepted.get(), back.data(), back.size(), MSG_NOSIGNAL), static_cast<ssize_t>(back.size()));
    peers.progress();
    return peer.arrivals.size() == 1;
  }));
  EXPECT_TRUE(party.losses.empty());
  EXPECT_EQ(tcp.counts().dialled, kSentAway + 1);
}

TEST(TcpStrangers, AreNotDialledWithoutEnd) {
  const auto listener = transport::listen_at(transport::Address::parse("127.0.0.1", 0));
  Party party(0);
  transport::Tcp tcp(0, 2, party, "127.0.0.1", kJob);
  tcp.meet({"", transport::Address::of(listener).text()});
  party.use(&tcp);
  party.send(1, 1000);
  ASSERT_TRUE(Cluster::until(party, [&] {
    transport::accept_connection(listener);
    return !party.losses.empty();
  }));
  EXPECT_TRUE(says(party.losses[0].second, "could not connect to 127.0.0.1:"));
  EXPECT_GT(tcp.counts().dialled, 1);
}

}  // namespace

}  // namespace trireme::test
