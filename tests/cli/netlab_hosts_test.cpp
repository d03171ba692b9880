// Ranks on hosts with networks of their own: network namespaces. Where those can't be had, these tests are skipped.
#include "cli/netlab.h"
#include "support/launched.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace trireme {
namespace {

class Netlab : public test::NetlabTest {
 protected:
  // The launcher runs on host 0.
  static std::vector<std::string> launch(const std::string& hosts, std::vector<std::string> words) {
    words.insert(words.begin(), {TRIREME_NETLAB, "run", "--name", name(), "0", TRIREME_PROGRAM, "run", "--hosts", hosts,
                                 "--agent", fmt::format("{} run --name {}", TRIREME_NETLAB, name())});
    return words;
  }
};

TEST_F(Netlab, RunsRanksOnAllHosts) {
  const Ran ran = run(launch("0:1,1:2,2:1", {"--timeout", "60s", TRIREME_HELLO}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(sorted_lines(ran.out).size(), 4U) << ran.out;
  for (const std::string& line : sorted_lines(ran.out)) EXPECT_TRUE(contains(line, "of 4: the sum")) << line;
  const Ran where = run(launch("1:1,2:1", {"/bin/sh", "-c", "echo ${TRIREME_RENDEZVOUS%:*} $MASTER_ADDR"}));
  EXPECT_EQ(sorted_lines(where.out), (std::vector<std::string>{"[0] 10.77.0.1 10.77.0.2", "[1] 10.77.0.1 10.77.0.2"}))
      << where.err;
}

// Of what ranks send to other hosts, little is on its way at a time. A connection that was made while the machine had too
// much to do may look like one to a host far away.
TEST_F(Netlab, KeepsQueuesShort) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  int bytes = 256 << 10;
  socklen_t size = sizeof bytes;
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, size);
  ::getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, &size);  // as the system has it, with its own limit
  ::close(socket);
  const std::string bounded = fmt::format(",tb{},", bytes);
  std::string sockets;
  for (int tries = 0; tries < 5 && !contains(sockets, bounded); ++tries) {
    Started started(launch("0:1,1:1", {"--env", "TRIREME_LOG=info", TRIREME_FAULT, "--deadline", "100s"}));
    ASSERT_TRUE(comes_true([&] { return are_at_work(2, started.err()); })) << started.err();
    for (const auto start = Clock::now(); seconds_since(start) < 3 && !contains(sockets, bounded);) {
      std::this_thread::sleep_for(50ms);
      sockets.clear();
      for (const char* const host : {"0", "1"}) {
        sockets += run({TRIREME_NETLAB, "run", "--name", name(), host, "ss", "-Htmn", "state", "established"}).out;
      }
    }
    started.signal(SIGTERM);
    started.wait();
  }
  EXPECT_TRUE(contains(sockets, bounded)) << sockets;
}

TEST_F(Netlab, NamesAHostThatIsCutOff) {
  const PidFiles pids;
  Started started(launch("0:1,1:1,2:1",
                         {"--env", "TRIREME_LOG=info", "/bin/sh", "-c",
                          "trap '' TERM;" + pids.script() + fmt::format("exec '{}' --deadline 100s", TRIREME_FAULT)}));
  const auto all = pids.wait_for(3);
  ASSERT_TRUE(comes_true([&] { return are_at_work(3, started.err()); })) << started.err();
  ASSERT_EQ(run({"/bin/sh", "-c", fmt::format("ip -n trireme-{}-switch link set port2 down", name())}).status, 0);
  expect_gone(all);
  EXPECT_EQ(started.wait(), 1) << started.err();
  for (const char* const culprit : {"[0] rank 2 (", "[1] rank 2 ("}) {
    const std::string err = started.err();
    const std::size_t begin = err.find(culprit);
    ASSERT_NE(begin, std::string::npos) << err;
    const std::string said = err.substr(begin, err.find('\n', begin) - begin);
    // It may notice first that it is alone, and end; the launcher, whose way to it is not cut, tells the others then.
    EXPECT_TRUE(contains(said, "is gone (its host has been silent") ||
                contains(said, "is gone (it exited with status 1)"))
        << err;
  }
  EXPECT_EQ(lines_with(started.err(), "*  ").size(), 1U) << started.err();
  EXPECT_EQ(lines_with(started.err(), "*    2  ").size(), 1U) << started.err();
}

// Ranks 0 and 2 wait for rank 1, so that nothing is said, and nobody would notice by himself.
TEST_F(Netlab, NamesAHostThatIsCutOffWhileRanksMeet) {
  Started started(launch("0:1,1:1,2:1", {"--env", "TRIREME_LOG=info", "/bin/sh", "-c",
                                         fmt::format("[ $RANK = 1 ] || '{}'; exec sleep 100", TRIREME_HELLO)}));
  const auto connections = [] {
    return run({TRIREME_NETLAB, "run", "--name", name(), "2", "ss", "-Htn", "state", "established"}).out;
  };
  // The agent of that host has been at the rendezvous before.
  ASSERT_TRUE(comes_true([&] {
    return contains(started.err(), "rank 2: started by") && sorted_lines(connections()).size() == 1;
  })) << started.err();
  std::this_thread::sleep_for(1s);  // until both have proved the secret
  ASSERT_EQ(run({"/bin/sh", "-c", fmt::format("ip -n trireme-{}-switch link set port2 down", name())}).status, 0);
  EXPECT_TRUE(comes_true([&] {
    const std::string err = started.err();
    return lines_with(err, "[0] hello: rank 2 (").size() == 1 &&
           lines_with(err, "[2] hello: trireme run (").size() == 1;
  })) << started.err();
  EXPECT_TRUE(contains(started.err(), ") is lost: ")) << started.err();
  EXPECT_TRUE(contains(started.err(), ", is lost (")) << started.err();
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 143) << started.err();
}

// Here what all ranks wait for is on its way to it: the system would send that again for a quarter of an hour.
TEST_F(Netlab, NamesAHostThatIsCutOffWhenRanksHaveMet) {
  const TemporaryFolder folder;
  const std::string come = folder / "come";
  Started started(launch("0:1,1:1,2:1", {"--env", "TRIREME_LOG=info", "/bin/sh", "-c",
                                         fmt::format("[ $RANK = 1 ] && while [ ! -e {} ]; do sleep 0.05; done; '{}'; "
                                                     "exec sleep 100",
                                                     come, TRIREME_HELLO)}));
  ASSERT_TRUE(comes_true([&] {
    return contains(started.err(), "rank 0: started by") && contains(started.err(), "rank 2: started by");
  })) << started.err();
  std::this_thread::sleep_for(1s);  // until both have proved the secret
  ASSERT_EQ(run({"/bin/sh", "-c", fmt::format("ip -n trireme-{}-switch link set port2 down", name())}).status, 0);
  ASSERT_EQ(run({"/bin/sh", "-c", "touch " + come}).status, 0);
  EXPECT_TRUE(comes_true([&] {
    return lines_with(started.err(), "[0] hello: rank 2 (").size() == 1 &&
           lines_with(started.err(), "[1] hello: rank 2 (").size() == 1;
  })) << started.err();
  EXPECT_FALSE(contains(started.err(), "no sign of it")) << started.err();
  started.signal(SIGTERM);
  EXPECT_NE(started.wait(), -1) << started.err();
}

// Whoever gives up first, and though the others are ended soon after that.
TEST_F(Netlab, TheTableMarksAHostThatIsCutOff) {
  Started started(launch("0:1,1:1,2:1", {"--env", "TRIREME_LOG=info", TRIREME_FAULT, "--deadline", "100s"}));
  ASSERT_TRUE(comes_true([&] { return are_at_work(3, started.err()); })) << started.err();
  ASSERT_EQ(run({"/bin/sh", "-c", fmt::format("ip -n trireme-{}-2 link set eth0 down", name())}).status, 0);
  EXPECT_EQ(started.wait(), 1) << started.err();
  EXPECT_EQ(lines_with(started.err(), "*  ").size(), 1U) << started.err();
  EXPECT_EQ(lines_with(started.err(), "*    2  ").size(), 1U) << started.err();
}

// Both hosts are up, and each says of the other that it is not: what all ranks agree on in the end is in the table.
TEST_F(Netlab, TheTableMarksWhomAllRanksNameWhenNothingComesThroughBetweenTwo) {
  Started started(launch("0:1,1:1,2:1", {"--env", "TRIREME_LOG=info", "--env", "TRIREME_ALGORITHM=ring", TRIREME_FAULT,
                                         "--deadline", "100s"}));
  ASSERT_TRUE(comes_true([&] { return are_at_work(3, started.err()); })) << started.err();
  const std::string script =
      "ip -n trireme-{0}-1 route add blackhole 10.77.0.3 && "
      "ip -n trireme-{0}-2 route add blackhole 10.77.0.2";
  ASSERT_EQ(run({"/bin/sh", "-c", fmt::format(fmt::runtime(script), name())}).status, 0);
  EXPECT_EQ(started.wait(), 1) << started.err();
  const std::string err = started.err();
  const std::size_t begin = err.find("[0] rank ");
  ASSERT_NE(begin, std::string::npos) << err;
  const std::string named = err.substr(begin + 9, 1);
  EXPECT_TRUE(named == "1" || named == "2") << err;
  EXPECT_EQ(lines_with(err, "*  ").size(), 1U) << err;
  EXPECT_EQ(lines_with(err, fmt::format("*    {}  ", named)).size(), 1U) << err;
}

// Addresses of the launcher that swallow what is sent to them are tried in a bounded time.
TEST_F(Netlab, FindsTheLauncherAmongManyAddresses) {
  std::string script = fmt::format("ip -n trireme-{}-1 route add 10.78.0.0/24 dev eth0 && ", name());
  for (int i = 1; i <= 12; ++i) {
    script += fmt::format(
        "ip -n trireme-{0}-0 address add 10.78.0.{1}/32 dev eth0 && "
        "ip -n trireme-{0}-1 neighbour add 10.78.0.{1} lladdr 02:00:00:00:00:99 dev eth0 && ",
        name(), i);
  }
  // What is added last is tried last.
  script += fmt::format(
      "ip -n trireme-{0}-0 address delete 10.77.0.1/24 dev eth0 && ip -n trireme-{0}-0 address add 10.77.0.1/24 dev "
      "eth0",
      name());
  const Ran prepared = run({"/bin/sh", "-c", script});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  const Ran ran = run(launch("1:1", {"/bin/sh", "-c", "echo ${TRIREME_RENDEZVOUS%:*}"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "[0] 10.77.0.1\n");
}

TEST_F(Netlab, EndsAllWhenOneFails) {
  const PidFiles pids;
  const Ran ran =
      run(launch("0:1,1:1,2:1",
                 {"/bin/sh", "-c", pids.script() + pids.wait_script(3) + "[ $RANK = 2 ] && exit 9; exec sleep 100"}));
  EXPECT_EQ(ran.status, 9) << ran.err;
  expect_gone(pids.wait_for(3));
}

TEST_F(Netlab, LeavesNoRankWhenTheLauncherIsKilled) {
  const PidFiles pids;
  Started started(
      launch("1:2,2:2", {"/bin/sh", "-c", "trap '' TERM;" + pids.script() + "while :; do sleep 0.05; done"}));
  const auto all = pids.wait_for(4);
  started.signal(SIGKILL);
  started.wait();
  expect_gone(all);
}

TEST_F(Netlab, TakesTheNetworkThatItIsTold) {
  for (int host = 0; host < 3; ++host) {
    ASSERT_EQ(
        run({"/bin/sh", "-c",
             fmt::format("ip -n trireme-{}-{} address add fd00:77::{}/64 dev eth0 nodad", name(), host, host + 1)})
            .status,
        0);
  }
  const auto run_hello = [](const std::string& interface) {
    return run(launch("0:1,1:1,2:1", {"--timeout", "60s", "--interface", interface, "--ports", "23000-23099", "--env",
                                      "TRIREME_LOG=info", TRIREME_HELLO}));
  };
  const Ran six = run_hello("fd00:77::/64");
  EXPECT_EQ(six.status, 0) << six.err;
  EXPECT_EQ(sorted_lines(six.out).size(), 3U) << six.out;
  EXPECT_TRUE(contains(six.err, "[2] trireme: rank 2: peers reach it at [fd00:77::3]:230")) << six.err;
  const Ran four = run_hello("10.77.0.0/16");
  EXPECT_EQ(four.status, 0) << four.err;
  EXPECT_TRUE(contains(four.err, "[0] trireme: rank 0: peers reach it at 10.77.0.1:230")) << four.err;
  EXPECT_TRUE(contains(four.err, "as TRIREME_INTERFACE asks")) << four.err;
}

TEST_F(Netlab, RefusesLoopbackBetweenHosts) {
  const Ran ran = run(launch("1:1,2:1", {"--timeout", "60s", "--env", "TRIREME_INTERFACE=lo", TRIREME_HELLO}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(contains(ran.err, "offers its peers the address 127.0.0.1")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "TRIREME_INTERFACE")) << ran.err;
}

TEST_F(Netlab, SaysThatAHostDoesNotReachTheLauncher) {
  const Ran ran = run(launch("1:1", {"--address", "127.0.0.1", "true"}));
  EXPECT_EQ(ran.status, 1);
  EXPECT_TRUE(contains(ran.err, "host 1: it does not reach the launcher at 127.0.0.1:")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "--address")) << ran.err;
}

}  // namespace
}  // namespace trireme
