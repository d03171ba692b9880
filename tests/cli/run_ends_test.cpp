// How `trireme run` ends: with its ranks, by the time, and by signals on the way.
#include "cli/launch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <regex>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace trireme {
namespace {

TEST(RunEnds, WithNothingWhenAllAreWell) {
  EXPECT_EQ(run_ranks(4, "exit 0").status, 0);
  // One may end long before the others.
  const Ran ran = run_ranks(2, "[ $RANK = 0 ] && exit 0; sleep 0.5; echo done");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out, "[1] done\n");
  EXPECT_EQ(ran.err, "");
}

TEST(RunEnds, WithTheStatusOfTheFirstToFail) {
  const auto start = Clock::now();
  const Ran ran = run_ranks(4, "[ $RANK = 2 ] && exit 7; exec sleep 100");
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_EQ(ran.status, 7);
  EXPECT_TRUE(contains(ran.err, "trireme run: rank 2 (pid ")) << ran.err;
  EXPECT_TRUE(contains(ran.err, ") exited with status 7; ending the other ranks\n")) << ran.err;
  const Ran last = run_ranks(1, "exit 3");
  EXPECT_EQ(last.status, 3);
  EXPECT_TRUE(contains(last.err, "exited with status 3\n")) << last.err;
  // What it said comes before what is said of it.
  EXPECT_EQ(run_ranks(1, "echo why >&2; exit 3").err.substr(0, 8), "[0] why\n");
}

TEST(RunEnds, WithTheSignalOfTheFirstToBeKilled) {
  const PidFiles pids;
  const Ran ran = run_ranks(3, pids.script() + pids.wait_script(3) + "[ $RANK = 1 ] && kill -9 $$; exec sleep 100");
  EXPECT_EQ(ran.status, 137);
  const auto all = pids.wait_for(3);
  const std::string said =
      fmt::format("trireme run: rank 1 (pid {}) was killed by signal 9 (Killed); ending the other ranks\n", all[1]);
  EXPECT_TRUE(ran.err.starts_with(said)) << ran.err;
  expect_gone(all);
}

TEST(RunEnds, ByForceAfterTheGrace) {
  const PidFiles pids;
  const auto start = Clock::now();
  // Rank 2 is stopped, but ends when it is told to.
  const Ran ran = run_ranks(4,
                            "[ $RANK = 2 ] || trap '' TERM;" + pids.script() + "[ $RANK = 2 ] && kill -STOP $$;" +
                                pids.wait_script(4) + "[ $RANK = 0 ] && exit 5; while :; do sleep 0.1; done",
                            {"--grace", "2s"});
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_EQ(ran.status, 5);
  EXPECT_TRUE(contains(ran.err, "ranks 1 and 3 did not end within 2 s; killing them")) << ran.err;
  expect_gone(pids.wait_for(4));
}

TEST(RunEnds, WithWhatRanksStarted) {
  const PidFiles pids;
  const Ran ran = run_ranks(3, "if [ $RANK = 0 ]; then " + pids.script() + pids.wait_script(3) + "exit 4; fi; sh -c '" +
                                   pids.script() + "sleep 100; true'; true");
  EXPECT_EQ(ran.status, 4);
  expect_gone(pids.wait_for(3));
}

// Also what they started, which the kernel would leave running.
TEST(RunEnds, WithWhatRanksStartedWhenTheLauncherIsKilled) {
  const PidFiles pids;
  Started started(launch(3, "sh -c '" + pids.script() + "trap \"\" TERM HUP INT; while :; do sleep 0.05; done'; true"));
  expect_end_of_all(started, pids, 3, 137, [&] { started.signal(SIGKILL); });
}

// A process that a rank leaves behind holds its output open; nobody waits for it.
TEST(RunEnds, ThoughOutputIsStillHeldOpen) {
  const auto start = Clock::now();
  const Ran ran = run_ranks(2, "(sleep 30; echo late) & echo in time");
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] in time", "[1] in time"}));
}

TEST(RunEnds, AfterTheTimeout) {
  const PidFiles pids;
  const auto start = Clock::now();
  const Ran ran = run_ranks(2, pids.script() + "exec sleep 100", {"--timeout", "3s"});
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_EQ(ran.status, 124);
  EXPECT_TRUE(ran.err.starts_with("trireme run: the time of 3 s is over; ending all ranks\n")) << ran.err;
  expect_gone(pids.wait_for(2));
  EXPECT_EQ(run_ranks(2, "exit 0", {"--timeout", "100s"}).status, 0);
}

// They are being ended already when the time is over.
TEST(RunEnds, WithTheStatusOfTheFirstToFailThoughTheTimeIsOver) {
  const Ran ran = run_ranks(2, "[ $RANK = 1 ] && { sleep 1; exit 9; }; trap '' TERM; while :; do sleep 1; done",
                            {"--timeout", "1500ms", "--grace", "1s"});
  EXPECT_EQ(ran.status, 9) << ran.err;
}

TEST(RunEnds, WithAReportEvenIfNoCollectiveWasCalled) {
  const TemporaryFolder folder;
  const std::string file = folder / "report.json";
  const Ran ran = run_ranks(3, "[ $RANK = 1 ] && exit 7; exec sleep 100", {"--report-file", file});
  EXPECT_EQ(ran.status, 7);
  EXPECT_EQ(lines_with(ran.err, "nothing: it called no collective").size(), 3U) << ran.err;
  EXPECT_TRUE(contains(ran.err, "\n*    1  ")) << ran.err;
  EXPECT_TRUE(std::filesystem::exists(file));
  // Nobody asks for the file, and there are no others whom one rank could have failed.
  const auto files_after = [&](int ranks, const std::string& script) {
    const TemporaryFolder here;
    run(by_shell("cd " + (here / ".") + R"( && unset TRIREME_REPORT_FILE && exec "$0" "$@")", launch(ranks, script)));
    return std::distance(std::filesystem::directory_iterator(here / "."), std::filesystem::directory_iterator());
  };
  EXPECT_EQ(files_after(2, "exit 3"), 1);
  EXPECT_EQ(files_after(1, "exit 3"), 0);
  EXPECT_EQ(files_after(2, "exit 0"), 0);
  EXPECT_FALSE(contains(run({TRIREME_PROGRAM, "run", "-n", "2", "./nonesuch"}).err, "what it did last"));
}

TEST(RunEnds, WhenNobodyReadsTheOutput) {
  const Ran ran = run(by_shell(R"("$0" "$@" | head -n 1)", launch(2, "while :; do echo y; done")));
  EXPECT_EQ(ran.status, 0);
  EXPECT_TRUE(contains(ran.out, "] y\n")) << ran.out;
  EXPECT_TRUE(contains(ran.err, "nobody reads the output")) << ran.err;
}

TEST(RunSignals, ThatEndTheLauncherEndAllRanks) {
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) {
    SCOPED_TRACE(signal);
    const PidFiles pids;
    Started started(launch(3, "ulimit -c 0;" + pids.script() + "exec sleep 100"));
    expect_end_of_all(started, pids, 3, 128 + signal, [&] { started.signal(signal); });
  }
}

TEST(RunSignals, LetRanksEndAsTheyLike) {
  const PidFiles pids;
  Started started(launch(2, "trap 'echo saved; exit 0' TERM;" + pids.script() + "while :; do sleep 0.05; done"));
  pids.wait_for(2);
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 0);
  EXPECT_EQ(sorted_lines(started.out()), (std::vector<std::string>{"[0] saved", "[1] saved"}));
  EXPECT_FALSE(contains(started.err(), "trireme run")) << started.err();
}

TEST(RunSignals, ThatRanksIgnoreEndThemAllTheSame) {
  const PidFiles pids;
  Started started(
      launch(2, "trap '' TERM INT;" + pids.script() + "while :; do sleep 0.05; done", {"--grace", "300ms"}));
  expect_end_of_all(started, pids, 2, 137, [&] { started.signal(SIGTERM); });
  EXPECT_TRUE(contains(started.err(), "ranks 0 and 1 did not end within 300 ms; killing them")) << started.err();
}

TEST(RunSignals, TwoInterruptsAreEnough) {
  const PidFiles pids;
  Started started(launch(2, "trap '' TERM; trap 'echo heard' INT;" + pids.script() + "while :; do sleep 0.05; done",
                         {"--grace", "100s"}));
  const auto all = pids.wait_for(2);
  started.signal(SIGINT);
  // A second one before the launcher has taken the first would be the same one.
  EXPECT_TRUE(comes_true([&] { return contains(started.out(), "[0] heard\n"); })) << started.err();
  EXPECT_FALSE(is_gone(all[0]));
  started.signal(SIGINT);
  EXPECT_EQ(started.wait(), 137);
  expect_gone(all);
}

TEST(RunSignals, OfTheUserArePassedOn) {
  const PidFiles pids;
  Started started(launch(2, "trap 'echo one' USR1; trap 'echo two' USR2; trap 'echo again' HUP;" + pids.script() +
                                "while :; do sleep 0.05; done"));
  pids.wait_for(2);
  const auto sent_and_heard = [&](int signal, const std::string& word) {
    started.signal(signal);
    return comes_true([&] { return contains(started.out(), "[0] " + word) && contains(started.out(), "[1] " + word); });
  };
  EXPECT_TRUE(sent_and_heard(SIGUSR1, "one"));
  EXPECT_TRUE(sent_and_heard(SIGUSR2, "two"));
  EXPECT_TRUE(sent_and_heard(SIGHUP, "again"));
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 143);
}

TEST(RunSignals, ThatStopAndContinueDoSoToRanks) {
  const PidFiles pids;
  // A shell that starts something may not stop until that has begun, which has been stopped too.
  Started started(launch(2, pids.script() + "exec sleep 100"));
  const auto all = pids.wait_for(2);
  // The launcher too: it stops after the ranks, and would not go on if it were told to before.
  std::vector<pid_t> with_launcher = all;
  with_launcher.push_back(started.id());
  const auto are_in_state = [&](const std::string& states) {
    return comes_true([&] {
      return std::all_of(with_launcher.begin(), with_launcher.end(), [&](pid_t pid) {
        const std::string stat = read_whole(fmt::format("/proc/{}/stat", pid));
        return contains(states, stat.substr(stat.rfind(')') + 2, 1));
      });
    });
  };
  started.signal(SIGTSTP);
  EXPECT_TRUE(are_in_state("T"));
  started.signal(SIGCONT);
  EXPECT_TRUE(are_in_state("SRD"));
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 143);
}

TEST(RunSignals, ThatWereIgnoredStaySo) {
  const PidFiles pids;
  Started started(
      by_shell(R"(trap '' HUP; exec "$0" "$@")", launch(1, pids.script() + "while :; do sleep 0.05; done")));
  const auto all = pids.wait_for(1);
  started.signal(SIGHUP);
  std::this_thread::sleep_for(200ms);
  EXPECT_FALSE(is_gone(all[0]));
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 143);
}

TEST(RunSignals, ThatKillTheLauncherLeaveNoRank) {
  const PidFiles pids;
  Started started(launch(5, "trap '' TERM HUP INT;" + pids.script() + "while :; do sleep 0.05; done"));
  expect_end_of_all(started, pids, 5, 137, [&] { started.signal(SIGKILL); });
}

TEST(RunSignals, AreHeardThoughNobodyReadsTheOutput) {
  const PidFiles pids;
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  const int reader = ::open((folder / "fifo").c_str(), O_RDONLY | O_NONBLOCK);
  Started started(
      by_shell(fmt::format(R"(exec "$0" "$@" > {})", folder / "fifo"),
               launch(2, pids.script() + "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
                      {"--grace", "300ms"})));
  const auto all = pids.wait_for(2);
  std::this_thread::sleep_for(500ms);  // It is full.
  started.signal(SIGTERM);
  EXPECT_TRUE(comes_true([&] { return is_gone(all[0]) && is_gone(all[1]); }));
  EXPECT_EQ(started.wait(), 143);
  ::close(reader);
}

// As where something between the launcher and rank 0 has closed what that inherits: the others' records stay where the
// launcher finds them.
TEST(RunReport, KnowsOthersThoughARankHasLostItsBoard) {
  const Ran ran = run_ranks(
      3, fmt::format("[ $RANK = 0 ] && unset TRIREME_BOARD; exec '{}' --kill 2 --after 100ms", TRIREME_FAULT));
  EXPECT_EQ(ran.status, 137) << ran.err;
  for (const int rank : {1, 2}) {
    const std::regex row(fmt::format(R"(\n[* ] +{}  \d+ .*operation \d+, allreduce of 1000 f32)", rank));
    EXPECT_TRUE(std::regex_search(ran.err, row)) << "rank " << rank << ": " << ran.err;
  }
}

// Rank 1 never calls init(), so that the others wait where ranks meet.
TEST(RunReport, NamesWhoDidNotComeWhenTheTimeIsOver) {
  const Ran ran =
      run_ranks(3, fmt::format("[ $RANK = 1 ] && exec sleep 100; exec '{}'", TRIREME_HELLO), {"--timeout", "2s"});
  EXPECT_EQ(ran.status, 124) << ran.err;
  const auto named = lines_with(ran.err, "nothing: the others waited for it where ranks meet");
  ASSERT_EQ(named.size(), 1U) << ran.err;
  EXPECT_TRUE(squeezed(named[0]).starts_with("* 1 ")) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "nothing: it called no collective").size(), 2U) << ran.err;
}

// The others do not wait for it for ever, and fail before it does.
TEST(RunReport, NamesWhoDidNotComeWhenTheOthersGiveUp) {
  const Ran ran = run_ranks(3, fmt::format("[ $RANK = 1 ] && exec sleep 100; exec '{}' --deadline 1s", TRIREME_FAULT));
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_TRUE(contains(ran.err, "was not complete after 1")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "rank 1 has not come")) << ran.err;
  EXPECT_TRUE(contains(ran.err, "InitOptions::patience")) << ran.err;
  const auto named = lines_with(ran.err, "nothing: the others waited for it where ranks meet");
  ASSERT_EQ(named.size(), 1U) << ran.err;
  EXPECT_TRUE(squeezed(named[0]).starts_with("* 1 ")) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "*").size(), 2U) << ran.err;  // it alone, and what a star is
}

}  // namespace
}  // namespace trireme
