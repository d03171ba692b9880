// Hosts that are reached by ssh itself: a client and servers that know nothing of Trireme, between network namespaces.
// Where those can't be had, or no server that runs without being a service (dropbear), these tests are skipped.
#include "cli/netlab.h"
#include "support/launched.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

namespace trireme {
namespace {

// The launcher runs on host 0; the hosts a and b are 1 and 2 of the cluster. For all that runs there this user has
// another home, by a list of users of its own, so that its keys are the test's.
class Ssh : public test::NetlabTest {
 protected:
  void SetUp() override {
    if (run({"/bin/sh", "-c", "command -v ssh && command -v dropbear && command -v dropbearkey"}).status != 0) {
      GTEST_SKIP() << "there is no ssh or no dropbear: tools/setup test";
    }
    NetlabTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    home_.write("config",
                "Host a\n HostName 10.77.0.2\nHost b\n HostName 10.77.0.3\nHost nobody\n HostName 10.77.0.1\n");
    const Ran prepared = run({"/bin/sh", "-ec", R"sh(
      cd "$0"; umask 077; mkdir .ssh; mv config .ssh
      ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519; cp .ssh/id_ed25519.pub .ssh/authorized_keys
      key=$(dropbearkey -t ed25519 -f key | grep ^ssh-)
      for host in 10.77.0.2 10.77.0.3; do echo "$host $key"; done > .ssh/known_hosts
      awk -F: -v OFS=: -v home="$0" -v me="$(id -u)" '$3 == me { $6 = home } { print }' /etc/passwd > passwd
      chmod 644 passwd)sh",
                              home_ / "."});
    ASSERT_EQ(prepared.status, 0) << prepared.err;
    for (const char* const host : {"1", "2"}) {
      servers_.push_back(std::make_unique<Started>(
          on(host, {"/bin/sh", "-c", R"(exec dropbear -F -E -s -r "$0" -p 22 -P '')", home_ / "key"})));
      ASSERT_TRUE(comes_true([&] {
        return contains(run({TRIREME_NETLAB, "run", "--name", name(), host, "ss", "-Hltn"}).out, ":22 ");
      })) << servers_.back()->err();
    }
  }
  void TearDown() override {
    servers_.clear();
    NetlabTest::TearDown();
  }

  std::vector<std::string> on(const std::string& host, std::vector<std::string> command) const {
    command.insert(command.begin(),
                   {"/bin/sh", "-c", R"(exec unshare -m sh -c 'mount --bind "$0" /etc/passwd && exec "$@"' "$0" "$@")",
                    home_ / "passwd", TRIREME_NETLAB, "run", "--name", name(), host});
    return command;
  }

  std::vector<std::string> launch(const std::string& hosts, std::vector<std::string> words) const {
    words.insert(words.begin(), {TRIREME_PROGRAM, "run", "--hosts", hosts});
    return on("0", std::move(words));
  }

  std::vector<std::string> launch_script(const std::string& hosts, const std::string& script) const {
    return launch(hosts, {"/bin/sh", "-c", script});
  }

  TemporaryFolder home_;
  std::vector<std::unique_ptr<Started>> servers_;
};

const std::string kGoesOn = "trap '' TERM HUP; while :; do sleep 0.05; done";

TEST_F(Ssh, RunsRanksOnAllHosts) {
  const Ran ran = run(launch("a:2,b:2", {"--timeout", "60s", TRIREME_HELLO}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(sorted_lines(ran.out).size(), 4U) << ran.out;
  for (const std::string& line : sorted_lines(ran.out)) EXPECT_TRUE(contains(line, "of 4: the sum")) << line;
}

TEST_F(Ssh, PassesOnWordsFoldersAndInputAsTheyAre) {
  const std::string words = "a  b' \"c\" $HOME `d` \\ *";
  auto command =
      launch("a:1,b:1", {"/bin/sh", "-c", R"(pwd; printf '%s\n' "$1"; [ $RANK = 1 ] || cksum)", "sh", words});
  command.insert(command.begin(), {"/bin/sh", "-c", R"(cd /usr/bin && printf 'x\ny' | "$@")", "sh"});
  const Ran ran = run(command);
  EXPECT_EQ(ran.status, 0) << ran.err;
  const std::string sum = run({"/bin/sh", "-c", R"(printf 'x\ny' | cksum)"}).out;
  EXPECT_EQ(sorted_lines(ran.out),
            sorted_lines(fmt::format("[0] /usr/bin\n[0] {0}\n[0] {1}[1] /usr/bin\n[1] {0}\n", words, sum)))
      << ran.err;
}

TEST_F(Ssh, ARankThatIsKilledIsNamedByAllAndItsStatusReturned) {
  const Ran ran = run(launch("a:2,b:2", {TRIREME_FAULT, "--kill", "2", "--after", "300ms", "--deadline", "50s"}));
  EXPECT_EQ(ran.status, 137) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "is gone (it was killed by signal 9 (Killed))").size(), 3U) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "*    2  ").size(), 1U) << ran.err;
}

TEST_F(Ssh, SignalsReachAllRanks) {
  const PidFiles pids;
  Started started(
      launch_script("a:1,b:2", "trap 'echo told; exit 3' INT;" + pids.script() + "while :; do sleep 0.05; done"));
  expect_end_of_all(started, pids, 3, 3, [&] { started.signal(SIGINT); });
  EXPECT_EQ(lines_with(started.out(), "told").size(), 3U) << started.out();
}

TEST_F(Ssh, NoRankIsLeftWhenOneFails) {
  const PidFiles pids;
  const Ran ran =
      run(launch_script("a:1,b:1", pids.script() + pids.wait_script(2) + "[ $RANK = 1 ] && exit 9; exec sleep 1000"));
  EXPECT_EQ(ran.status, 9) << ran.err;
  expect_gone(pids.wait_for(2));
}

TEST_F(Ssh, NoRankIsLeftWhenTheLauncherIsKilled) {
  const PidFiles pids;
  Started started(launch_script("a:2,b:2", pids.script() + kGoesOn));
  expect_end_of_all(started, pids, 4, 128 + SIGKILL, [&] { started.signal(SIGKILL); });
}

// The server's process for the connection is killed, as when a host is shut down.
TEST_F(Ssh, NoRankIsLeftWhenAConnectionBreaks) {
  const PidFiles pids;
  Started started(launch_script("a:2,b:2", pids.script() + kGoesOn));
  expect_end_of_all(started, pids, 4, 255, [&] {
    const std::string server = fmt::format("{}", servers_.at(1)->id());
    EXPECT_EQ(run({"/bin/sh", "-c", R"(kill -9 $(cat /proc/$0/task/$0/children))", server}).status, 0);
  });
  EXPECT_TRUE(contains(started.err(), "host b: it is lost")) << started.err();
}

// Not even a packet says so, on either side: ssh and the agent there notice the silence.
TEST_F(Ssh, NoRankIsLeftWhenAHostIsCutOff) {
  const PidFiles pids;
  Started started(launch_script("a:1,b:1", pids.script() + kGoesOn));
  const auto all = pids.wait_for(2);
  ASSERT_EQ(run({"/bin/sh", "-c", fmt::format("ip -n trireme-{}-switch link set port2 down", name())}).status, 0);
  EXPECT_EQ(started.wait(), 255) << started.err();
  EXPECT_TRUE(contains(started.err(), "host b: it is lost")) << started.err();
  expect_gone(all);
}

// Of others' launchers, on several hosts.
void expect_hello_by(const Ran& ran, const std::string& starter) {
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_EQ(lines_with(ran.out, "of 4: the sum of 1000 elements is right").size(), 4U) << ran.out << ran.err;
  EXPECT_EQ(lines_with(ran.err, fmt::format("started by {} as rank ", starter)).size(), 4U) << ran.err;
}

TEST_F(Ssh, MpirunOfOpenMpiStartsRanksOnSeveralHosts) {
  if (run({"/bin/sh", "-c", "command -v mpirun.openmpi"}).status != 0) GTEST_SKIP() << "Open MPI is not installed";
  const auto mpirun = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"timeout", "60", "mpirun.openmpi", "--allow-run-as-root", "--host", "a:2,b:2", "-x",
                                 "TRIREME_LOG=info"});
    words.emplace_back(TRIREME_HELLO);
    return run(on("0", std::move(words)));
  };
  expect_hello_by(mpirun({"-x", "MASTER_ADDR=10.77.0.2", "-x", "MASTER_PORT=29500"}), "mpirun of Open MPI");
  const Ran nowhere = mpirun({});
  EXPECT_NE(nowhere.status, 0);
  EXPECT_TRUE(contains(nowhere.err, "they need a place to meet")) << nowhere.err;
}

TEST_F(Ssh, MpirunOfMpichStartsRanksOnSeveralHosts) {
  if (run({"/bin/sh", "-c", "command -v mpirun.mpich"}).status != 0) GTEST_SKIP() << "MPICH is not installed";
  expect_hello_by(run(on("0", {"timeout", "60", "mpirun.mpich", "-localhost", "10.77.0.1", "-hosts", "a:2,b:2", "-genv",
                               "TRIREME_LOG", "info", "-genv", "MASTER_ADDR", "10.77.0.2", "-genv", "MASTER_PORT",
                               "29500", TRIREME_HELLO})),
                  "mpirun of MPICH");
}

TEST_F(Ssh, HostsThatCantBeReachedAreNamedWithWhatSshSays) {
  const Ran nobody = run(launch("a:1,nobody:1,unknown.invalid:1", {"true"}));
  EXPECT_EQ(nobody.status, 255) << nobody.err;
  for (const char* const words : {"host nobody: ", "Connection refused", "host unknown.invalid: ", "by hand"}) {
    EXPECT_TRUE(contains(nobody.err, words)) << words << ": " << nobody.err;
  }
  EXPECT_FALSE(contains(nobody.err, "host a: ")) << nobody.err;
  ASSERT_EQ(run({"/bin/sh", "-c", "rm " + (home_ / ".ssh/authorized_keys")}).status, 0);
  const Ran stranger = run(launch("a:1", {"true"}));
  EXPECT_EQ(stranger.status, 255) << stranger.err;
  EXPECT_TRUE(contains(stranger.err, "Permission denied")) << stranger.err;
}

}  // namespace
}  // namespace trireme
