// Peers: real ones where their libraries are installed, and workers of shell script that misbehave on purpose.
#include "cli/peers.h"

#include "support/run.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;

template <typename Failure, typename Call>
void expect_throws(Call call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown: " << words;
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find(words), std::string::npos) << failure.what();
  }
}

// A folder with a gloo_collective that is a script. Each rank adds its process to the file `pids` first, and waits until
// all have.
class Fake {
 public:
  explicit Fake(const std::string& script) {
    const std::string pids = folder_ / "pids";
    const std::string path = folder_.write(
        "gloo_collective", fmt::format("#!/bin/sh\necho $$ >> {0}\n"
                                       "until [ $(wc -l < {0}) -ge $WORLD_SIZE ]; do sleep 0.01; done\n{1}",
                                       pids, script));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  std::filesystem::path folder() const { return folder_ / ""; }

  std::vector<pid_t> processes() const {
    std::istringstream lines(read_whole(folder_ / "pids"));
    std::vector<pid_t> ids;
    for (pid_t id = 0; lines >> id;) ids.push_back(id);
    return ids;
  }

  void expect_all_ended(std::size_t ranks) const {
    EXPECT_EQ(processes().size(), ranks);
    for (const pid_t id : processes()) EXPECT_TRUE(::kill(id, 0) != 0 && errno == ESRCH) << id;
  }

 private:
  TemporaryFolder folder_;
};

const std::string kOthersWait = "[ $RANK = 0 ] || exec sleep 1000\n";
const std::string kReady = kOthersWait + "echo gloo,ready,$WORLD_SIZE\nread question\n";

TEST(Peers, RefuseWhatThereIsNot) {
  const TemporaryFolder empty;
  const auto start = [&](const std::string& name, int ranks, const std::string& transport) {
    return [=, folder = empty / ""] { const Peer peer(name, ranks, transport, folder); };
  };
  EXPECT_EQ(Peer::known(), (std::vector<std::string>{"openmpi", "mpich", "gloo", "probe"}));
  expect_throws<UsageError>(start("opnmpi", 2, "shm"), "did you mean 'openmpi'?");
  expect_throws<UsageError>(start("gloo", 2, "shm"), "gloo has no shared memory");
  expect_throws<UsageError>(start("gloo", 0, "tcp"), "1 rank or more");
  expect_throws<UsageError>(start("gloo", 2, "pigeon"), "shm or tcp, not 'pigeon'");
  for (const std::string name : {"openmpi", "mpich", "gloo"}) {
    expect_throws<UsageError>(start(name, 2, "tcp"), "make bench");
    expect_throws<UsageError>(start(name, 2, "tcp"), name + "_collective");
  }
  expect_throws<UsageError>(start("probe", 2, "shm"), "make bench");
  expect_throws<UsageError>(start("probe", 2, "tcp"), "nothing but shared memory");
}

TEST(Peers, AnswerAndEnd) {
  const Fake fake(kReady +
                  "echo \"gloo-ring,allreduce,3,4096,12.50,7.25\"\n"
                  "read question; echo error,it has no $question\n"
                  "read question || exit 0\n");
  {
    Peer peer("gloo", 3, "tcp", fake.folder());
    const Timing timing = peer.run("allreduce", 4096, 10);
    EXPECT_EQ(timing.median_us, 12.5);
    EXPECT_EQ(timing.min_us, 7.25);
    expect_throws<UsageError>([&] { peer.run("dance", 4, 1); }, "gloo: it has no dance 4 1");
  }
  fake.expect_all_ended(3);
}

TEST(Peers, ThatAreSilentAreEnded) {
  const Fake fake("trap '' TERM\n" + kReady + "exec sleep 1000\n");
  {
    Peer peer("gloo", 2, "tcp", fake.folder());
    expect_throws<TimeoutError>([&] { peer.run("allreduce", 4096, 10, 200ms); }, "gloo gave no answer in 0.2 s");
    expect_throws<PeerError>([&] { peer.run("allreduce", 4096, 10); }, "gave no answer");
  }
  fake.expect_all_ended(2);
}

TEST(Peers, ThatEndTooSoonSayWhy) {
  const Fake at_start("echo no network >&2; exit 3");
  expect_throws<PeerError>([&] { const Peer peer("gloo", 2, "tcp", at_start.folder()); }, "no network");
  const Fake launcher("echo; echo bad termination; exit 9");
  expect_throws<PeerError>([&] { const Peer peer("gloo", 1, "tcp", launcher.folder()); }, "bad termination");
  const Fake at_work(kReady + "echo wrong sum >&2; exit 1");
  {
    Peer peer("gloo", 2, "tcp", at_work.folder());
    expect_throws<PeerError>([&] { peer.run("allreduce", 4096, 10); }, "'allreduce 4096 10'; it said: wrong sum");
  }
  at_work.expect_all_ended(2);
  const Fake other_rank("[ $RANK = 1 ] && { echo I am gone >&2; exit 1; }\n" + kReady + "exec sleep 1000");
  expect_throws<PeerError>(
      [&] {
        Peer peer("gloo", 2, "tcp", other_rank.folder());
        peer.run("allreduce", 4096, 10);
      },
      "I am gone");
  other_rank.expect_all_ended(2);
}

TEST(Peers, ThatCantBeStartedSayWhy) {
  const TemporaryFolder folder;
  const std::string path = folder.write("gloo_collective", "#!/no/such/interpreter\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  expect_throws<SystemError>([&] { const Peer peer("gloo", 2, "tcp", folder / ""); },
                             "gloo_collective can't be started: No such file or directory");
  EXPECT_TRUE(::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) << "a child was left";
}

TEST(Peers, ThatTalkNonsenseAreNotBelieved) {
  for (const std::string answer :
       {"gloo", "gloo,allreduce,2,4096,fast,1", "gloo,broadcast,2,4096,1,1", "gloo,allreduce,2,8,1,1"}) {
    const Fake fake(fmt::format("{}echo {}\nread question\n", kReady, answer));
    Peer peer("gloo", 2, "tcp", fake.folder());
    expect_throws<ProtocolError>([&] { peer.run("allreduce", 4096, 10); }, answer);
  }
  const Fake stranger("echo gloo,ready,7\nread question\n");
  expect_throws<ProtocolError>([&] { const Peer peer("gloo", 1, "tcp", stranger.folder()); }, "gloo,ready,7");
}

struct Real {
  std::string name;
  std::string transport;
};

// What this build has. A machine without other libraries has none, and measures none.
std::vector<Real> real_peers() {
  std::vector<Real> peers;
  for (const Real& peer :
       std::vector<Real>{{"openmpi", "shm"}, {"openmpi", "tcp"}, {"mpich", "shm"}, {"gloo", "tcp"}}) {
    if (std::filesystem::exists(std::filesystem::path(TRIREME_PEERS) / (peer.name + "_collective")))
      peers.push_back(peer);
  }
  return peers;
}

class RealPeer : public testing::TestWithParam<Real> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RealPeer);

TEST_P(RealPeer, TimesEveryCollective) {
  Peer peer(GetParam().name, 2, GetParam().transport, TRIREME_PEERS);
  for (const std::string collective : {"allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather",
                                       "scatter", "all_to_all", "barrier"}) {
    if (GetParam().name == "gloo" && collective == "reduce_scatter") {
      expect_throws<UsageError>([&] { peer.run(collective, 4096, 3); }, "it has no reduce_scatter");
      continue;
    }
    const Timing timing = peer.run(collective, 4096, 3);
    EXPECT_GT(timing.min_us, 0) << collective;
    EXPECT_GE(timing.median_us, timing.min_us) << collective;
  }
}

INSTANTIATE_TEST_SUITE_P(Built, RealPeer, testing::ValuesIn(real_peers()),
                         [](const auto& instance) { return instance.param.name + "_" + instance.param.transport; });

}  // namespace
}  // namespace trireme::cli
