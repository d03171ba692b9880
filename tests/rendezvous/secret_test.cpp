// The job's secret at the rendezvous: who proves it meets, who does not is turned away, and both sides say why.
#include "ranks.h"
#include "rendezvous/guard.h"
#include "rendezvous/wire.h"
#include "support/throws.h"
#include "trireme/error.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace trireme::rendezvous {
namespace {

Guard guarded(bool encrypt = false, const std::string& secret = "sixteen letters or more") {
  return {.secret = Secret(secret), .encrypt = encrypt};
}

// A server's notices, from its own thread.
class Notices {
 public:
  Guard in(Guard guard) {
    guard.notice = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      all_.push_back(text);
    };
    return guard;
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

void expect_meeting(const Server& server, const Guard& guard) {
  const auto errors = on_ranks(3, [&](int rank) {
    Client client(place_at(server.port(), rank, 3), 30s, guard);
    for (int round = 0; round < 5; ++round) {
      const auto blobs = client.exchange(payload(rank, round, 300'000), soon());
      for (int peer = 0; peer < 3; ++peer) EXPECT_EQ(blobs[peer], payload(peer, round, 300'000));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(Secrets, ThatAreTheSameMeet) {
  for (const bool encrypt : {false, true}) {
    const Server server("127.0.0.1", 0, 3, Meetings::many, "trireme run", guarded(encrypt));
    for (int again = 0; again < 3; ++again) expect_meeting(server, guarded(encrypt));
    EXPECT_EQ(server.strangers(), 0);
  }
}

TEST(Secrets, ThatDifferAreNamedOnBothSides) {
  struct Case {
    Guard server, client;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases{
      {guarded(), guarded(false, "another secret than theirs"), {"rank 1 (", "another secret than trireme run ("}},
      {guarded(), {}, {"rank 1 (", "has no secret, and trireme run (", "has a secret", "TRIREME_SECRET"}},
      {{}, guarded(), {"rank 1 (", "has a secret, and does not encrypt, and trireme run (", "has no secret"}},
      {guarded(true),
       guarded(),
       {"rank 1 (", "does not encrypt, and trireme run (", "and encrypts", "TRIREME_ENCRYPT"}},
  };
  for (const Case& one : cases) {
    Notices notices;
    const Server server("127.0.0.1", 0, 3, Meetings::many, "trireme run", notices.in(one.server));
    expect_in(message_of<UsageError>([&] { Client(place_at(server.port(), 1, 3), 10s, one.client); }), one.words);
    ASSERT_EQ(notices.all().size(), 1);
    expect_in(notices.all()[0], {"127.0.0.1"});
    expect_in(notices.all()[0], one.words);
    EXPECT_EQ(server.strangers(), 1);
    // Who waits for it hears of it, too; and the job goes on once it comes as it should.
    Client waits(place_at(server.port(), 0, 3), 10s, one.server);
    expect_in(message_of<TimeoutError>([&] { waits.exchange("", Clock::now() + 50ms); }),
              {"ranks 1 and 2 have not come; one was turned away: "});
  }
}

TEST(Secrets, CantBeProvedByWhatWasSaidBefore) {
  const Server server("127.0.0.1", 0, 2, Meetings::many, "trireme run", guarded());
  const std::string hello = body(Hello{.guard = kHasSecret, .rank = 0, .ranks = 2, .who = "a stranger"});
  const auto challenged = [&](const Stranger& stranger) {
    stranger.send(frame(Kind::hello, hello));
    const std::string heard = stranger.hear(500ms);
    return heard.substr(std::min(heard.size(), kHeaderBytes));
  };
  const Stranger first(server.port());
  const std::string earlier = challenged(first);
  const Stranger second(server.port());
  const std::string now = challenged(second);
  EXPECT_NE(earlier, now);
  const Secret secret = guarded().secret;
  // Said to another connection; by the other side; and by one that has another secret.
  for (const Digest& proof : {client_proof(secret, hello, earlier), server_proof(secret, hello, now), Digest{}}) {
    const Stranger stranger(server.port());
    challenged(stranger);
    stranger.send(frame(Kind::proof, as_text(proof)));
    expect_in(stranger.hear(500ms), {"another secret"});
  }
  EXPECT_EQ(server.strangers(), 3);
  second.send(frame(Kind::proof, as_text(client_proof(secret, hello, now))));
  expect_in(second.hear(500ms), {std::string(as_text(server_proof(secret, hello, now)))});
}

TEST(Secrets, AreAskedOfTheServerToo) {
  for (const std::string& answer : {frame(Kind::challenge, body(Challenge{.nonce = fresh_nonce(), .who = "nobody"})) +
                                        frame(Kind::welcome, as_text(Digest{})),
                                    frame(Kind::welcome, "trireme run (here)"), frame(Kind::challenge, "short")}) {
    const Descriptor listener = listen_at("127.0.0.1", 0);
    std::thread server([&] { serve_once(listener, answer); });
    EXPECT_THROW(Client(place_at(local_port(listener), 0, 2), 10s, guarded()), Error);
    server.join();
  }
}

// The body of the next frame that comes.
std::string hear_frame(const Descriptor& socket) {
  FrameReader reader;
  while (true) {
    std::array<char, 4096> buffer{};
    const ssize_t count = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (count <= 0) return {};
    std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
    while (!bytes.empty()) {
      if (const auto frame = reader.take(bytes)) return frame->body;
    }
  }
}

// Proves the secret to the first that comes, and says this where keys are to be exchanged.
void serve_without_keys(const Descriptor& listener, const std::string& said) {
  wait_for(listener, POLLIN, soon());
  const Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto say = [&](std::string_view bytes) { ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); };
  const std::string hello = hear_frame(socket);
  const std::string challenge = body(Challenge{.nonce = fresh_nonce(), .who = "trireme run (there:17)"});
  say(frame(Kind::challenge, challenge));
  hear_frame(socket);
  say(frame(Kind::welcome, as_text(server_proof(guarded().secret, hello, challenge))));
  wait_for(socket, POLLIN, soon());  // for the client's part of the keys
  say(said);
  ::shutdown(socket.get(), SHUT_WR);
  std::array<char, 4096> buffer{};
  while (::recv(socket.get(), buffer.data(), buffer.size(), 0) > 0) continue;
}

TEST(Secrets, AreNotEnoughWhereAllIsEncrypted) {
  for (const std::string said : {"220 mail.example ESMTP ready\r\n", ""}) {
    const Descriptor listener = listen_at("127.0.0.1", 0);
    const std::uint16_t port = local_port(listener);
    std::thread server([&] { serve_without_keys(listener, said); });
    expect_in(message_of<PeerError>([&] { Client(place_at(port, 1, 2), 10s, guarded(true)); }),
              {"rank 1 can't encrypt what it says to trireme run (there:17), which runs the rendezvous at 127.0.0.1:" +
                   std::to_string(port),
               "keys could not be exchanged: ", said.empty() ? "hung up" : "does not fit this connection's key"});
    server.join();
  }
}

// Who only asks whether the job's server is there is no stranger, if it proves the secret.
TEST(Secrets, LetVisitorsIn) {
  for (const bool encrypt : {false, true}) {
    Notices notices;
    const Server server("127.0.0.1", 0, 3, Meetings::many, "trireme run", notices.in(guarded(encrypt)));
    const auto visit = [&](const Guard& guard) {
      Client::visit(connect_to(resolve("127.0.0.1", server.port()).front(), soon()), guard, soon());
    };
    for (int i = 0; i < 20; ++i) visit(guarded(encrypt));
    expect_meeting(server, guarded(encrypt));
    EXPECT_EQ(server.strangers(), 0);
    EXPECT_EQ(notices.all().size(), 0);
    expect_in(message_of<UsageError>([&] { visit(guarded(encrypt, "another secret than theirs")); }),
              {"a visitor (", "another secret than trireme run ("});
    EXPECT_EQ(server.strangers(), 1);
  }
  // Whatever takes the call is not the job's server for that.
  const Descriptor other = listen_at("127.0.0.1", 0);
  EXPECT_THROW(Client::visit(connect_to(resolve("127.0.0.1", local_port(other)).front(), soon()), guarded(),
                             Clock::now() + 50ms),
               Error);
}

TEST(Secrets, KeepOutTenThousandStrangers) {
  Notices notices;
  const Server server("127.0.0.1", 0, 3, Meetings::many, "trireme run", notices.in(guarded()));
  const std::string liar = frame(Hello{.guard = kHasSecret, .rank = 0, .ranks = 3, .who = "a stranger"});
  std::thread crowd([&] {
    std::vector<Stranger> strangers;
    for (int i = 0; i < 10'000; ++i) {
      if (strangers.size() == 400) strangers.erase(strangers.begin(), strangers.begin() + 200);
      const Stranger& stranger = strangers.emplace_back(server.port());
      if (i % 3 == 1) stranger.send("GET / HTTP/1.1\r\n");
      if (i % 3 == 2) stranger.send(liar);
    }
  });
  expect_meeting(server, guarded());
  crowd.join();
  expect_meeting(server, guarded());
  for (const auto end = Clock::now() + 30s; server.strangers() < 10'000 && Clock::now() < end;) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(server.strangers(), 10'000);
  EXPECT_LE(notices.all().size(), 10);
}

// Who serves has other uses for its descriptors.
TEST(Secrets, KeepStrangersFromTakingAllDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 256;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const Server server("127.0.0.1", 0, 2, Meetings::one, "rank 0", guarded());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  constexpr int kStrangers = 200;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < kStrangers; ++i) strangers.push_back(std::make_unique<Stranger>(server.port()));
  const auto until = Clock::now() + 30s;
  while (server.strangers() < kStrangers / 2 && Clock::now() < until) std::this_thread::sleep_for(10ms);
  EXPECT_GE(server.strangers(), kStrangers / 2);
}

TEST(Secrets, AreNotWaitedForLong) {
  Notices notices;
  const Server server("127.0.0.1", 0, 3, Meetings::many, "trireme run", notices.in(guarded()));
  const Stranger silent(server.port());
  expect_meeting(server, guarded());
  EXPECT_EQ(silent.hear(30s), "");  // until it is hung up on
  EXPECT_EQ(server.strangers(), 1);
  expect_in(notices.all().at(0), {"did not say who it is in time"});
}

using Variables = std::map<std::string, std::string>;

Lookup lookup_in(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

class SecretFile {
 public:
  SecretFile(const std::string& text, mode_t mode)
      : path_(testing::TempDir() + "trireme-secret-" + std::to_string(::getpid())) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), mode);
  }
  ~SecretFile() { std::remove(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(GuardVariables, GiveASecret) {
  EXPECT_FALSE(guard_from_environment(lookup_in({})).secret);
  const Guard guard =
      guard_from_environment(lookup_in({{"TRIREME_SECRET", "sixteen letters!"}, {"TRIREME_ENCRYPT", "1"}}));
  EXPECT_EQ(guard.secret.text(), "sixteen letters!");
  EXPECT_TRUE(guard.encrypt);
  const SecretFile file("sixteen letters?\n", 0600);
  EXPECT_EQ(guard_from_environment(lookup_in({{"TRIREME_SECRET_FILE", file.path()}})).secret.text(),
            "sixteen letters?");
}

TEST(GuardVariables, ThatAreWrongAreNamedAndExplained) {
  const SecretFile open("sixteen letters?\n", 0640);
  const std::vector<std::pair<Variables, std::vector<std::string>>> cases{
      {{{"TRIREME_SECRET", "short"}}, {"TRIREME_SECRET: ", "5 characters", "openssl rand"}},
      {{{"TRIREME_SECRET", ""}}, {"TRIREME_SECRET: ", "0 characters"}},
      {{{"TRIREME_SECRET_FILE", "/no/such"}}, {"TRIREME_SECRET_FILE is '/no/such'", "No such file"}},
      {{{"TRIREME_SECRET_FILE", "/tmp"}}, {"TRIREME_SECRET_FILE is '/tmp'", "no file"}},
      {{{"TRIREME_SECRET_FILE", open.path()}}, {"others may read", "chmod 600 " + open.path()}},
      {{{"TRIREME_SECRET", "sixteen letters!"}, {"TRIREME_SECRET_FILE", "x"}}, {"both set"}},
      {{{"TRIREME_ENCRYPT", "yes"}}, {"TRIREME_ENCRYPT is 'yes'", "0 or 1"}},
      {{{"TRIREME_ENCRYPT", "1"}}, {"no secret to encrypt with", "trireme run --encrypt"}},
  };
  for (const auto& [variables, words] : cases) {
    expect_in(test::usage_error([&, &set = variables] { guard_from_environment(lookup_in(set)); }), words);
  }
}

TEST(GuardVariables, OfALauncherReachItsRanks) {
  const Guard made = guard_for_ranks(lookup_in({}));
  EXPECT_EQ(made.secret.text().size(), 64);
  EXPECT_EQ(variables_for_ranks(made, lookup_in({})),
            (std::vector<std::string>{"TRIREME_ENCRYPT=0", "TRIREME_SECRET=" + made.secret.text()}));
  EXPECT_EQ(variables_for_ranks(made, lookup_in({{"TRIREME_SECRET_FILE", "f"}})),
            (std::vector<std::string>{"TRIREME_ENCRYPT=0"}));
}

}  // namespace
}  // namespace trireme::rendezvous
