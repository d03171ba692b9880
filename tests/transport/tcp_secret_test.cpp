// Who can't prove the job's secret: neither let in nor talked to, counted, and told why where that helps.
#include "transport/tcp_cluster.h"
#include "transport/tcp_handshake.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace trireme::test {

namespace {

using transport::Tcp;
using transport::Transcript;
using transport::wire::Hello;
using transport::wire::Stage;

// The next record that the stranger hears.
Hello hear_from(TcpCluster& cluster, const Stranger& stranger) {
  std::string heard;
  EXPECT_TRUE(
      cluster.until([&] { return (heard += stranger.hear(sizeof(Hello) - heard.size())).size() == sizeof(Hello); }));
  Hello record;
  std::memcpy(&record, heard.data(), sizeof record);
  return record;
}

// Three ranks with a secret, and what rank 1 is told of strangers.
class TcpSecret : public ::testing::Test {
 protected:
  static Guard with_notices(std::vector<std::string>& notices) {
    Guard guard = guarded();
    guard.notice = [&notices](const std::string& text) { notices.push_back(text); };
    return guard;
  }

  TcpSecret() : cluster_(3, 1, "127.0.0.1", with_notices(notices_)) {}

  Hello hear(const Stranger& stranger) { return hear_from(cluster_, stranger); }

  static Hello hello_with_secret() {
    Hello said = hello(0, 1, 3);
    said.guard = transport::wire::kHasSecret;
    said.nonce = fresh_nonce();
    return said;
  }

  // Says a right hello, and hears the challenge.
  Transcript be_challenged(const Stranger& stranger) {
    Transcript transcript{.hello = hello_with_secret(), .challenge = {}};
    stranger.say(bytes_of(transcript.hello));
    transcript.challenge = hear(stranger);
    EXPECT_EQ(transcript.challenge.stage, Stage::challenge);
    EXPECT_EQ(transcript.challenge.proof, Digest{});
    return transcript;
  }

  static void say_proof(const Stranger& stranger, const Digest& digest) {
    Hello proof = hello_with_secret();
    proof.stage = Stage::proof;
    proof.proof = digest;
    stranger.say(bytes_of(proof));
  }

  void expect_turned_away(const Stranger& stranger, const std::string& why) {
    ASSERT_TRUE(cluster_.until([&] { return stranger.dropped(); }));
    EXPECT_EQ(cluster_.counts(1).strangers, 1);
    EXPECT_EQ(cluster_.counts(1).accepted, 0);
    ASSERT_EQ(notices_.size(), 1);
    EXPECT_TRUE(says(notices_[0], "a stranger was turned away (1 so far): 127.0.0.1:"));
    EXPECT_TRUE(says(notices_[0], why));
    expect_all_is_well();
  }

  void expect_all_is_well() {
    const std::size_t before = cluster_[1].arrivals.size();
    cluster_[0].send(1, 1000);
    cluster_[2].send(1, 1000);
    ASSERT_TRUE(cluster_.until_sent(cluster_[1], before + 2));
    for (const auto& party : cluster_) EXPECT_TRUE(party->losses.empty());
  }

  std::vector<std::string> notices_;
  TcpCluster cluster_;
};

TEST_F(TcpSecret, LetsInWhoProvesIt) {
  const Stranger rank(cluster_.tcp(1).address());
  const Transcript transcript = be_challenged(rank);
  say_proof(rank, transcript.prove(guarded().secret, Stage::proof));
  const Hello answer = hear(rank);
  EXPECT_EQ(answer.stage, Stage::answer);
  EXPECT_TRUE(transcript.proved(guarded().secret, answer));
  EXPECT_EQ(cluster_.counts(1).accepted, 1);
  EXPECT_EQ(cluster_.counts(1).strangers, 0);
}

TEST_F(TcpSecret, TurnsAwayWhoHasNone) {
  const Stranger stranger(cluster_.tcp(1).address());
  stranger.say(bytes_of(hello(0, 1, 3)));
  EXPECT_EQ(hear(stranger).stage, Stage::refusal);
  expect_turned_away(stranger,
                     "it has no secret, and this rank a secret, and does not encrypt: give all ranks the same");
}

TEST_F(TcpSecret, TurnsAwayWhoHasAnother) {
  const Stranger stranger(cluster_.tcp(1).address());
  const Transcript transcript = be_challenged(stranger);
  say_proof(stranger, transcript.prove(Secret("another secret than theirs"), Stage::proof));
  EXPECT_EQ(hear(stranger).stage, Stage::refusal);
  expect_turned_away(stranger, "it says that it is rank 0, but has another secret than rank 1");
}

TEST_F(TcpSecret, TurnsAwayAProofThatWasSaidBefore) {
  Transcript earlier;
  {
    const Stranger first(cluster_.tcp(2).address());
    earlier = {.hello = hello_with_secret(), .challenge = {}};
    earlier.hello.to = 2;
    first.say(bytes_of(earlier.hello));
    earlier.challenge = hear(first);
  }
  const Stranger stranger(cluster_.tcp(1).address());
  be_challenged(stranger);
  say_proof(stranger, earlier.prove(guarded().secret, Stage::proof));
  EXPECT_EQ(hear(stranger).stage, Stage::refusal);
  expect_turned_away(stranger, "another secret");
}

TEST_F(TcpSecret, TurnsAwayTheProofOfTheOtherEnd) {
  const Stranger stranger(cluster_.tcp(1).address());
  const Transcript transcript = be_challenged(stranger);
  say_proof(stranger, transcript.prove(guarded().secret, Stage::answer));
  EXPECT_EQ(hear(stranger).stage, Stage::refusal);
  expect_turned_away(stranger, "another secret");
}

TEST_F(TcpSecret, TurnsAwayAProofForAnotherRank) {
  const Stranger stranger(cluster_.tcp(1).address());
  Transcript transcript = be_challenged(stranger);
  transcript.hello.from = 2;
  say_proof(stranger, transcript.prove(guarded().secret, Stage::proof));
  EXPECT_EQ(hear(stranger).stage, Stage::refusal);
  expect_turned_away(stranger, "another secret");
}

TEST_F(TcpSecret, HoldsUpNobodyForWhoNeverProvesIt) {
  const Stranger slow(cluster_.tcp(1).address());
  be_challenged(slow);
  const Stranger silent(cluster_.tcp(1).address());
  expect_all_is_well();
  ASSERT_TRUE(cluster_.until([&] { return silent.dropped(); }));
  EXPECT_EQ(cluster_.counts(1).strangers, 1);
  EXPECT_TRUE(says(notices_.at(0), "it did not say who it is in time"));
}

TEST_F(TcpSecret, GoesOnAmongTenThousandStrangers) {
  std::vector<std::unique_ptr<Stranger>> crowd(400);
  for (int i = 0; i < 10'000; ++i) {
    auto& stranger = crowd[i % crowd.size()];
    stranger = std::make_unique<Stranger>(cluster_.tcp(1).address());
    if (i % 3 == 0) stranger->try_to_say("GET / HTTP/1.1\r\n");
    if (i % 3 == 1) stranger->try_to_say(bytes_of(hello(0, 1, 3)));
    if (i % 50 == 0) cluster_.idle(std::chrono::milliseconds(1));
    if (i % 2000 == 0) expect_all_is_well();
  }
  expect_all_is_well();
  crowd.clear();
  ASSERT_TRUE(cluster_.until([&] { return cluster_.counts(1).strangers == 10'000; }));
  EXPECT_LE(notices_.size(), 10);
  expect_all_is_well();
}

// Two ranks that were told different things: both say so.
void expect_both_say(const Guard& zero, const Guard& one, const std::string& dialler, const std::string& dialled) {
  std::vector<std::string> notices;
  Guard noting = one;
  noting.notice = [&](const std::string& text) { notices.push_back(text); };
  std::vector<std::unique_ptr<Party>> parties;
  for (const int rank : {0, 1}) parties.push_back(std::make_unique<Party>(rank));
  Tcp first(0, 2, *parties[0], "127.0.0.1", kJob, 1, zero);
  Tcp second(1, 2, *parties[1], "127.0.0.1", kJob, 1, noting);
  first.meet({"", second.address()});
  parties[0]->use(&first);
  parties[0]->send(1, 100);
  ASSERT_TRUE(Cluster::until(*parties[0], [&] {
    second.progress();
    return !parties[0]->losses.empty();
  }));
  EXPECT_TRUE(says(parties[0]->losses[0].second, dialler));
  ASSERT_EQ(notices.size(), 1);
  EXPECT_TRUE(says(notices[0], dialled));
}

TEST(TcpSecrets, ThatDifferAreNamedOnBothSides) {
  expect_both_say(guarded(), guarded(false, "another secret than theirs"),
                  "it says that this rank has another secret: give all ranks the same",
                  "it says that it is rank 0, but has another secret than rank 1");
  expect_both_say(guarded(), {},
                  "it has no secret, and this rank a secret, and does not encrypt: give all ranks the same",
                  "it has a secret, and does not encrypt, and this rank no secret");
  expect_both_say({}, guarded(), "it has a secret, and does not encrypt, and this rank no secret", "it has no secret");
}

TEST(TcpSecrets, AreAskedOfWhoAnswers) {
  for (const Stage stage : {Stage::answer, Stage::challenge, Stage::refusal, Stage::hello}) {
    const auto listener = transport::listen_at(transport::Address::parse("127.0.0.1", 0));
    Party party(0);
    Tcp tcp(0, 2, party, "127.0.0.1", kJob, 1, guarded());
    tcp.meet({"", transport::Address::of(listener).text()});
    party.use(&tcp);
    party.send(1, 1000);
    transport::Descriptor accepted;
    ASSERT_TRUE(Cluster::until(party, [&] { return bool(accepted = transport::accept_connection(listener)); }));
    Hello answer = hello(1, 0, 2);
    answer.guard = transport::wire::kHasSecret;
    answer.stage = stage;
    ASSERT_EQ(::send(accepted.get(), &answer, sizeof answer, 0), static_cast<ssize_t>(sizeof answer));
    ASSERT_TRUE(Cluster::until(party, [&] { return !party.losses.empty(); }));
    EXPECT_TRUE(says(party.losses[0].second, "secret"));
  }
}

// Who proves the secret, but then does not encrypt, is no rank.
TEST(TcpSecrets, AreNotEnoughWhereAllIsEncrypted) {
  TcpCluster cluster(2, 1, "127.0.0.1", guarded(true));
  const Stranger liar(cluster.tcp(1).address());
  Transcript said{.hello = hello(0, 1, 2), .challenge = {}};
  said.hello.guard = transport::wire::kHasSecret | transport::wire::kEncrypts;
  liar.say(bytes_of(said.hello));
  said.challenge = hear_from(cluster, liar);
  Hello proof = said.hello;
  proof.stage = Stage::proof;
  proof.proof = said.prove(guarded().secret, Stage::proof);
  liar.say(bytes_of(proof));
  EXPECT_EQ(hear_from(cluster, liar).stage, Stage::answer);
  liar.say(bytes_of(transport::wire::Header{.bytes = 4}) + "text");
  ASSERT_TRUE(cluster.until([&] { return !cluster[1].losses.empty(); }));
  EXPECT_TRUE(
      says(cluster[1].losses[0].second, "sent bytes that were not encrypted with this connection's key (127.0.0.1:"));
  EXPECT_TRUE(cluster[1].arrivals.empty());
}

TEST(TcpVersions, ThatDifferAreNamedOnBothSides) {
  const std::string mine = std::string(build_name()) + " (version 4 of what TCP carries)";
  const std::string theirs = "Trireme 9.9 (version 5 of what TCP carries)";
  std::vector<std::string> notices;
  Guard noting;
  noting.notice = [&](const std::string& text) { notices.push_back(text); };
  TcpCluster cluster(2, 1, "127.0.0.1", noting);
  Hello other = hello(0, 1, 2);
  other.version = 5;
  other.build = {};
  std::memcpy(other.build.data(), "Trireme 9.9", 11);
  const Stranger stranger(cluster.tcp(1).address());
  stranger.say(bytes_of(other));
  std::string heard;
  ASSERT_TRUE(cluster.until([&] { return (heard += stranger.hear(sizeof(Hello))).size() >= sizeof(Hello); }));
  EXPECT_TRUE(says(heard, std::string(build_name())));
  ASSERT_EQ(notices.size(), 1);
  EXPECT_TRUE(
      says(notices[0], "it is " + theirs + ", and this rank " + mine + ": build all ranks with the same Trireme"));

  // And where it was this rank that dialled.
  const auto listener = transport::listen_at(transport::Address::parse("127.0.0.1", 0));
  Party party(0);
  Tcp tcp(0, 2, party, "127.0.0.1", kJob);
  tcp.meet({"", transport::Address::of(listener).text()});
  party.use(&tcp);
  party.send(1, 1000);
  transport::Descriptor accepted;
  ASSERT_TRUE(Cluster::until(party, [&] { return bool(accepted = transport::accept_connection(listener)); }));
  ASSERT_EQ(::send(accepted.get(), &other, sizeof other, 0), static_cast<ssize_t>(sizeof other));
  ASSERT_TRUE(Cluster::until(party, [&] { return !party.losses.empty(); }));
  EXPECT_TRUE(says(party.losses[0].second, "it is " + theirs + ", and this rank " + mine));
}

}  // namespace

}  // namespace trireme::test
