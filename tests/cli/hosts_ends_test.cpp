// How a run on several hosts ends, and what is reported of ranks and hosts that do not come to a good end.
#include "cli/launch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace trireme {
namespace {

TEST(HostsEnd, WithTheStatusOfTheFirstToFail) {
  const Agents agents;
  const PidFiles pids;
  const Ran ran = run(launch("a:2,b:2", agents.plain(),
                             pids.script() + pids.wait_script(4) + "[ $RANK = 2 ] && exit 7; exec sleep 100"));
  EXPECT_EQ(ran.status, 7);
  const auto all = pids.wait_for(4);
  const std::string said =
      fmt::format("trireme run: rank 2 (pid {} on b) exited with status 7; ending the other ranks\n", all[2]);
  EXPECT_TRUE(ran.err.starts_with(said)) << ran.err;
  expect_gone(all);
}

TEST(HostsEnd, ByForceAfterTheGrace) {
  const Agents agents;
  const PidFiles pids;
  const Ran ran = run(launch("a:2,b:2", agents.plain(),
                             "trap '' TERM;" + pids.script() + pids.wait_script(4) +
                                 "[ $RANK = 0 ] && kill -9 $$; while :; do sleep 0.1; done",
                             {"--grace", "500ms"}));
  EXPECT_EQ(ran.status, 137);
  EXPECT_TRUE(contains(ran.err, "ranks 1 to 3 did not end within 500 ms; killing them")) << ran.err;
  expect_gone(pids.wait_for(4));
}

TEST(HostsEnd, WithSignals) {
  const Agents agents;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    SCOPED_TRACE(signal);
    const PidFiles pids;
    Started started(launch("a:1,b:2", agents.plain(), pids.script() + "exec sleep 100"));
    expect_end_of_all(started, pids, 3, 128 + signal, [&] { started.signal(signal); });
  }
}

TEST(HostsEnd, OrGoOnAsRanksLike) {
  const Agents agents;
  const PidFiles pids;
  Started started(
      launch("a:1,b:1", agents.plain(),
             "trap 'echo one' USR1; trap 'echo saved; exit 0' TERM;" + pids.script() + "while :; do sleep 0.05; done"));
  pids.wait_for(2);
  started.signal(SIGUSR1);
  EXPECT_TRUE(comes_true([&] { return contains(started.out(), "[0] one") && contains(started.out(), "[1] one"); }));
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 0) << started.err();
  EXPECT_TRUE(contains(started.out(), "[1] saved")) << started.out();
}

// Longer than hosts may say nothing: 30 s.
TEST(HostsEnd, NotBecauseTheLauncherWasStoppedForLong) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:1,b:1", agents.plain(),
                         "trap 'echo saved; exit 0' TERM;" + pids.script() + "while :; do sleep 0.05; done"));
  pids.wait_for(2);
  started.signal(SIGTSTP);
  std::this_thread::sleep_for(35s);
  started.signal(SIGCONT);
  std::this_thread::sleep_for(1s);
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 0) << started.err();
  EXPECT_FALSE(contains(started.err(), "trireme run: ")) << started.err();
}

// As where a host has lost its power: nothing is closed, and nothing said.
TEST(HostsEnd, WhenAHostIsSilent) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:1,b:1", agents.with_pid(), pids.script() + "exec sleep 200"));
  const auto all = pids.wait_for(2);
  agents.signal("b", SIGSTOP);
  EXPECT_EQ(started.wait(), 1) << started.err();
  EXPECT_TRUE(contains(started.err(), "trireme run: host b: there is no sign of it for 30 seconds")) << started.err();
  expect_gone(all);
}

// Unlike one that was stopped by Ctrl-Z, it can't say that it will be.
TEST(HostsEnd, WhenTheLauncherIsSilent) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:1,b:1", agents.plain(), pids.script() + "exec sleep 200"));
  const auto all = pids.wait_for(2);
  started.signal(SIGSTOP);
  expect_gone(all);
  started.signal(SIGCONT);
  EXPECT_NE(started.wait(), 0) << started.err();
}

TEST(HostsEnd, WhenTheLauncherIsKilled) {
  const Agents agents;
  const PidFiles pids;
  Started started(
      launch("a:2,b:2", agents.plain(), "trap '' TERM HUP INT;" + pids.script() + "while :; do sleep 0.05; done"));
  expect_end_of_all(started, pids, 4, 137, [&] { started.signal(SIGKILL); });
}

TEST(HostsEnd, WithWhatRanksStartedWhenTheLauncherIsKilled) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:2,b:2", agents.plain(), "sh -c '" + pids.script() + "exec sleep 100'; true"));
  expect_end_of_all(started, pids, 4, 137, [&] { started.signal(SIGKILL); });
}

TEST(HostsEnd, WithWhatRanksStartedWhenAHostIsLost) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:2,b:2", agents.with_pid(), "sh -c '" + pids.script() + "exec sleep 100'; true"));
  expect_end_of_all(started, pids, 4, 137, [&] { agents.kill("b"); });
}

TEST(HostsEnd, WhenAHostIsLost) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:2,b:2", agents.with_pid(), pids.script() + "exec sleep 100"));
  expect_end_of_all(started, pids, 4, 137, [&] { agents.kill("b"); });
  EXPECT_TRUE(contains(started.err(), "host b: it is lost")) << started.err();
}

// Agents that take their time are waited for together.
TEST(HostsEnd, AtOnce) {
  const Agents agents;
  const auto start = Clock::now();
  const std::string slow = agents.script("slow", R"(shift; "$@"; exec sleep 100)");
  EXPECT_EQ(run(launch("a:1,b:1,c:1,d:1,e:1,f:1,g:1", slow, "true")).status, 0);
  EXPECT_LT(seconds_since(start), 10) << "2 s, not 2 s each";
}

TEST(HostsEnd, AfterTheTimeout) {
  const Agents agents;
  const Ran ran = run(launch("a:1,b:1", agents.plain(), "exec sleep 100", {"--timeout", "1s"}));
  EXPECT_EQ(ran.status, 124);
  // It counts from the beginning, not from when all hosts are there.
  const Ran early = run(launch("a:1,b:1", agents.with_trouble("exec sleep 100"), "true", {"--timeout", "1s"}));
  EXPECT_EQ(early.status, 124) << early.err;
}

TEST(HostsReport, TellsAllHowARankOfAnotherHostDied) {
  const Agents agents;
  const std::string file = agents.write("report.json", "");
  const Ran ran = run(launch("a:2,b:2", agents.plain(), fmt::format("exec '{}' --kill 3 --after 300ms", TRIREME_FAULT),
                             {"--report-file", file}));
  EXPECT_EQ(ran.status, 128 + SIGKILL) << ran.err;
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(contains(ran.err, fmt::format("[{}] rank 3 (", rank))) << ran.err;
  }
  std::size_t told = 0;
  for (std::size_t at = ran.err.find("is gone (it was killed by signal 9"); at != std::string::npos;
       at = ran.err.find("is gone (it was killed by signal 9", at + 1)) {
    ++told;
  }
  EXPECT_EQ(told, 3U) << ran.err;
  EXPECT_TRUE(contains(squeezed(ran.err), " on b was killed by signal 9")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "\n*    3  ")) << ran.err;
  const auto report = nlohmann::json::parse(read_whole(file));
  EXPECT_EQ(report["blamed"], nlohmann::json{3});
  ASSERT_EQ(report["ranks"].size(), 4U);
  for (const auto& rank : report["ranks"]) {
    EXPECT_EQ(rank["host"], rank["rank"] < 2 ? "a" : "b");
    EXPECT_EQ(rank["recent"].size(), 16U) << rank;
  }
}

// Nobody there can say what the rank did last: the others do not wait for that.
TEST(HostsReport, WaitsForNoHostThatDoesNotAnswer) {
  const Agents agents;
  Started started(launch("a:1,b:1", agents.with_pid(),
                         fmt::format("exec '{}' --stop 1 --after 100ms --deadline 3s", TRIREME_FAULT),
                         {"--env", "TRIREME_TRANSPORT=tcp", "--grace", "1s"}));
  ASSERT_TRUE(comes_true([&] { return contains(started.out(), "[1] now: stop"); })) << started.err();
  agents.signal("b", SIGSTOP);
  EXPECT_EQ(started.wait(), 1) << started.err();
  const auto said = lines_with(started.err(), "[0] rank 0 (");
  ASSERT_EQ(said.size(), 1U) << started.err();
  EXPECT_TRUE(contains(said[0], ") for rank 1 (")) << said[0];
  EXPECT_TRUE(contains(said[0], ") has not answered")) << said[0];
}

TEST(HostsReport, TellsWhatStoppedARankOfAnotherHost) {
  const Agents agents;
  const Ran ran = run(
      launch("a:2,b:2", agents.plain(), fmt::format("exec '{}' --stop 3 --after 300ms --deadline 4s", TRIREME_FAULT)));
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_TRUE(contains(squeezed(ran.err), " on b was stopped by signal 19 (Stopped), then ")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "\n*    3  ")) << ran.err;
}

// Also what its ranks did, as long as was heard of it; and those that are left have their last words.
TEST(HostsReport, TellsOfALostHost) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:1,b:1", agents.with_pid(),
                         "trap '' TERM;" + pids.script() + fmt::format("exec '{}'", TRIREME_FAULT),
                         {"--env", "TRIREME_LOG=info"}));
  const auto all = pids.wait_for(2);
  ASSERT_TRUE(comes_true([&] { return are_at_work(2, started.err()); })) << started.err();
  std::this_thread::sleep_for(7s);  // An agent says every 5 s what its ranks do, and nobody else hears of it.
  agents.kill("b");
  EXPECT_EQ(started.wait(), 137) << started.err();
  EXPECT_TRUE(contains(started.err(), "[0] rank 1 (")) << started.err();
  EXPECT_TRUE(
      contains(squeezed(started.err()), fmt::format("* 1 {} on b was on a host that is lost operation ", all[1])))
      << started.err();
  EXPECT_TRUE(contains(started.err(), ", when it was last heard of")) << started.err();
  EXPECT_FALSE(contains(started.err(), "*    0")) << started.err();
}

TEST(HostsReport, SaysWhatIsNotKnownOfALostHost) {
  const Agents agents;
  const PidFiles pids;
  Started started(launch("a:1,b:1", agents.with_pid(), pids.script() + "echo up; exec sleep 100", {"--report"}));
  const auto all = pids.wait_for(2);
  // What a rank says comes behind the news that it is there.
  ASSERT_TRUE(comes_true([&] { return contains(started.out(), "[1] up\n"); })) << started.err();
  agents.kill("b");
  EXPECT_EQ(started.wait(), 137) << started.err();
  EXPECT_TRUE(
      contains(squeezed(started.err()), fmt::format("* 1 {} on b was on a host that is lost not known\n", all[1])))
      << started.err();
}

// A rank that came last to most collectives.
void expect_last(const nlohmann::json& report, int straggler) {
  const std::uint64_t seen = report["collectives_seen"];
  EXPECT_GT(seen, 10U);
  std::uint64_t last = 0;
  for (const auto& rank : report["stragglers"]) {
    if (rank["rank"] == straggler) last = rank["last"];
  }
  EXPECT_GT(last, seen / 2) << report;
}

// The clocks of hosts are compared by the agents.
TEST(HostsReport, NamesWhoComesLate) {
  const Agents agents;
  const std::string file = agents.write("report.json", "");
  const Ran ran = run(launch("a:2,b:1", agents.plain(), fmt::format("exec '{}' --slow 2 --for 1s", TRIREME_FAULT),
                             {"--report", "--report-file", file}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  expect_last(nlohmann::json::parse(read_whole(file)), 2);
}

// Here the clock of host b is far ahead, so that its rank would seem to come last if nobody knew.
TEST(HostsReport, ComparesClocks) {
  const std::string ahead = "unshare --time --monotonic 1000 --fork --kill-child";
  if (run({"/bin/sh", "-c", ahead + " true"}).status != 0) GTEST_SKIP() << "no namespaces for clocks here";
  const Agents agents;
  const std::string file = agents.write("report.json", "");
  const Ran ran = run(launch("a:2,b:1", agents.with_trouble(fmt::format(R"(exec {} "$@")", ahead)),
                             fmt::format("exec '{}' --slow 0 --for 1s", TRIREME_FAULT),
                             {"--report", "--report-file", file, "--env", "TRIREME_TRANSPORT=tcp"}));
  EXPECT_EQ(ran.status, 0) << ran.err;
  const auto report = nlohmann::json::parse(read_whole(file));
  expect_last(report, 0);
  for (const auto& rank : report["stragglers"]) EXPECT_LT(rank["most_s"].get<double>(), 100) << report;
}

}  // namespace
}  // namespace trireme
