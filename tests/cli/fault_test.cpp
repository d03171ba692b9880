// Faults as a user meets them: a rank that is killed, stopped or lost in its own code, and what all others and the
// report say of it. With "hosts" the last rank is on another host, as far as the launcher and all ranks can tell.
#include "cli/launch.h"
#include "cli/left_behind.h"
#include "support/launched.h"
#include "support/random.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace trireme {
namespace {

class Fault : public ::testing::TestWithParam<const char*> {
 protected:
  static bool on_hosts() { return GetParam() == std::string("hosts"); }

  // What an option or `env` sets. Ranks of two hosts that are one machine would see each other's memory.
  static std::string transport() { return fmt::format("TRIREME_TRANSPORT={}", on_hosts() ? "tcp" : GetParam()); }

  // `trireme run`, for so many ranks.
  std::vector<std::string> launcher(int ranks) const {
    std::vector<std::string> all{TRIREME_PROGRAM, "run"};
    if (on_hosts()) {
      all.insert(all.end(), {"--hosts", fmt::format("a:{},b:1", ranks - 1), "--agent", agents_.plain()});
    } else {
      all.insert(all.end(), {"-n", std::to_string(ranks)});
    }
    return all;
  }

  std::vector<std::string> command(int ranks, const std::vector<std::string>& rest) const {
    std::vector<std::string> all = launcher(ranks);
    all.insert(all.begin(), {"/usr/bin/env", transport()});
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }

  // The example, on four ranks.
  Ran fault(const std::vector<std::string>& arguments, std::vector<std::string> options = {}) const {
    options.emplace_back(TRIREME_FAULT);
    options.insert(options.end(), arguments.begin(), arguments.end());
    return run(command(4, options), 60s);
  }

  // "17" or "17 on b", as the launcher says it.
  static std::string process_of(const Ran& ran, int rank) {
    std::smatch match;
    const std::regex row(fmt::format(R"(\n[* ] +{}  (\d+( on \w)?)  )", rank));
    return std::regex_search(ran.err, match, row) ? match[1].str() : "?";
  }
  static int pid_of(const Ran& ran, int rank) { return std::stoi("0" + process_of(ran, rank)); }

  static bool says_what_it_did_last(const std::string& said, int rank) {
    return std::regex_search(said, std::regex(fmt::format(R"(; rank {} \(\S+, pid \d+\) ended operation \d+, )"
                                                          R"(allreduce of 1000 f32, max by \w+ \d+\.\d s ago)",
                                                          rank)));
  }

  // Those that the table has a star for.
  static std::vector<int> causes_of(const Ran& ran) {
    std::vector<int> ranks;
    for (const std::string& line : lines_with(ran.err, "*")) {
      if (line.starts_with("*  ")) ranks.push_back(std::stoi(line.substr(1)));
    }
    EXPECT_TRUE(contains(ran.err, "\n* is what the failure seems to come from\n")) << ran.err;
    return ranks;
  }

  double seconds_until_named(const std::string& arguments) const;

 private:
  Agents agents_;
};

TEST_P(Fault, AKilledRankIsNamedByAllOthers) {
  const auto begin = Clock::now();
  const Ran ran = fault({"--kill", "2", "--after", "200ms"});
  EXPECT_LT(Clock::now() - begin, 15s);
  EXPECT_EQ(ran.status, 128 + 9) << ran.err;
  const int pid = pid_of(ran, 2);
  EXPECT_TRUE(contains(ran.err, fmt::format("trireme run: rank 2 (pid {}) was killed by signal 9", process_of(ran, 2))))
      << ran.err;
  for (const int rank : {0, 1, 3}) {
    const auto said = lines_with(ran.err, fmt::format("[{}] rank 2 (", rank));
    ASSERT_EQ(said.size(), 1U) << ran.err;
    EXPECT_TRUE(contains(said[0], fmt::format("pid {}) is gone (it was killed by signal 9 (Killed))", pid)));
    EXPECT_TRUE(contains(said[0], "allreduce of 1000 f32")) << said[0];
  }
  // One that comes to it when it is known already is not in it any more.
  EXPECT_GE(lines_with(ran.err, "in operation").size(), 2U) << "a rank, and the line below the table: " << ran.err;
  EXPECT_TRUE(contains(ran.err, " of 4 ranks were in operation ")) << ran.err;
  EXPECT_EQ(causes_of(ran), std::vector{2}) << ran.err;
}

constexpr double kASecond = test::kEffort == 1 ? 10 : 1;

// How long ranks 0 and 2 take to name rank 1 when it is killed: the median of a few runs, as far as that is needed to
// know whether it is within a second. With a sanitizer it may take longer.
double Fault::seconds_until_named(const std::string& arguments) const {
  const std::string script = fmt::format(
      R"(trap '' TERM; if [ $RANK = 1 ]; then '{0}' {1} & p=$!; sleep 1; echo "$(date +%s.%N) killed"; kill -9 $p; wait $p; )"
      R"(else '{0}' {1} 2>&1 | while read -r line; do echo "$(date +%s.%N) $line"; done; fi)",
      TRIREME_FAULT, arguments);
  MedianOf5 times(kASecond);
  while (!times.known()) {
    const Ran ran = run(command(4, {"--timeout", "30s", "--grace", "4s", "/bin/sh", "-c", script}), 60s);
    const auto killed = lines_with(ran.out, " killed");
    if (killed.size() != 1) {
      ADD_FAILURE() << ran.out << ran.err;
      return 60;
    }
    double most = 0;
    for (const char* const rank : {"[0] ", "[2] "}) {
      const auto said = lines_with(ran.out, rank);
      if (said.size() != 1) {
        ADD_FAILURE() << ran.out << ran.err;
        return 60;
      }
      EXPECT_TRUE(contains(said[0], "rank 1 (")) << said[0];
      most = std::max(most, std::stod(said[0].substr(4)) - std::stod(killed[0].substr(4)));
    }
    times.add(most);
  }
  return times.median();
}

TEST_P(Fault, AKilledRankIsNamedWithinASecond) { EXPECT_LT(seconds_until_named(""), kASecond); }

TEST_P(Fault, AKilledRankIsNamedWithinASecondThoughAnotherIsInItsOwnCode) {
  EXPECT_LT(seconds_until_named("--stray 3 --after 500ms"), kASecond);
}

// A program that ends by `return -1` is not taken for one that was killed.
TEST_P(Fault, AKilledRankIsTheCauseHoweverTheOthersExit) {
  const std::string script =
      fmt::format(R"('{}' --kill 2 --after 200ms; s=$?; [ $s = 137 ] && kill -9 $$; exit 255)", TRIREME_FAULT);
  const Ran ran = run(command(4, {"--timeout", "30s", "/bin/sh", "-c", script}), 60s);
  EXPECT_GE(lines_with(ran.err, "exited with status 255").size(), 2U) << ran.err;
  EXPECT_EQ(causes_of(ran), std::vector{2}) << ran.err;
}

TEST_P(Fault, AStoppedRankIsNamedByAllOthersAtTheDeadline) {
  const Ran ran = fault({"--stop", "3", "--after", "100ms", "--deadline", "3s"});
  EXPECT_EQ(ran.status, 1) << ran.err;
  const int pid = pid_of(ran, 3);
  for (const int rank : {0, 1, 2}) {
    const auto said = lines_with(ran.err, fmt::format("[{}] rank ", rank));
    ASSERT_EQ(said.size(), 1U) << ran.err;
    EXPECT_TRUE(std::regex_search(
        said[0],
        std::regex(fmt::format(R"(allreduce of 1000 f32.* \(operation \d+\) for rank 3 \(\S+, pid {}\);)", pid))))
        << said[0];
    EXPECT_TRUE(contains(said[0], "3 of 4 ranks are in it")) << said[0];
    EXPECT_TRUE(says_what_it_did_last(said[0], 3)) << said[0];
  }
  EXPECT_TRUE(contains(ran.err, "; rank 3 was not")) << ran.err;
  EXPECT_EQ(causes_of(ran), std::vector{3}) << ran.err;
  EXPECT_TRUE(contains(
      squeezed(ran.err),
      fmt::format("* 3 {} was stopped by signal 19 (Stopped), then was ended by trireme run ", process_of(ran, 3))))
      << ran.err;
}

// It is stopped for good, and nobody's deadline comes before the end of all time.
TEST_P(Fault, ARunThatTakesTooLongIsReportedOn) {
  for (const char* const fault_of : {"--stop", "--stray"}) {
    const Ran ran =
        fault({fault_of, "1", "--after", "100ms", "--deadline", "50s"}, {"--timeout", "6s", "--grace", "20s"});
    EXPECT_EQ(ran.status, 124) << ran.err;
    EXPECT_EQ(lines_with(ran.err, "  in operation ").size(), 3U) << ran.err;
    EXPECT_TRUE(contains(ran.err, "; rank 1 was not")) << ran.err;
    EXPECT_EQ(causes_of(ran), std::vector{1}) << ran.err;
  }
}

TEST_P(Fault, ARankLostInItsOwnCodeIsNamedByAllOthersAtTheDeadline) {
  const Ran ran = fault({"--stray", "3", "--after", "100ms", "--deadline", "3s"});
  EXPECT_EQ(ran.status, 1) << ran.err;
  const auto said = lines_with(ran.err, ") for rank 3 (");
  EXPECT_EQ(said.size(), 3U) << ran.err;
  for (const std::string& line : said) EXPECT_TRUE(says_what_it_did_last(line, 3)) << line;
  EXPECT_TRUE(contains(ran.err, "; rank 3 was not")) << ran.err;
  EXPECT_EQ(causes_of(ran), std::vector{3}) << ran.err;
}

TEST_P(Fault, TheReportNamesWhoComesLate) {
  const TemporaryFolder folder;
  const std::string file = folder / "report.json";
  const Ran ran = fault({"--slow", "3", "--for", "1s"}, {"--report", "--report-file", file});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_TRUE(contains(ran.err, "who came last to")) << ran.err;
  const auto report = nlohmann::json::parse(read_whole(file));
  ASSERT_EQ(report["ranks"].size(), 4U);
  for (const auto& rank : report["ranks"]) {
    EXPECT_EQ(rank["ended"], "exited with status 0");
    EXPECT_TRUE(rank["last"]["finished"]);
    EXPECT_TRUE(contains(rank["last"]["call"], "allreduce of 1000 f32"));
  }
  const std::uint64_t seen = report["collectives_seen"];
  EXPECT_GT(seen, 10U);
  std::uint64_t last = 0;
  for (const auto& rank : report["stragglers"]) {
    if (rank["rank"] != 3) continue;
    last = rank["last"];
    EXPECT_GT(rank["kept_waiting_s"].get<double>(), 0.01 * static_cast<double>(last));
  }
  EXPECT_GT(last, seen * 8 / 10) << ran.err;
}

// Nobody has to ask for it before.
TEST_P(Fault, AFailedRunLeavesItsReportAsJson) {
  const TemporaryFolder folder;
  const std::string script = "cd '" + (folder / ".") + "' && unset TRIREME_REPORT_FILE && exec \"$@\"";
  const auto fault_there = [&](const std::vector<std::string>& options) {
    std::vector<std::string> all{"/bin/sh", "-c", script, "-"};
    for (const std::string& word : launcher(3)) all.push_back(word);
    all.insert(all.end(), options.begin(), options.end());
    return run(all, 60s);
  };
  EXPECT_EQ(fault_there({"--env", transport(), TRIREME_FAULT, "--for", "50ms"}).status, 0);
  EXPECT_TRUE(folder.empty());
  const std::vector<std::string> kill{"--env", transport(), TRIREME_FAULT, "--kill", "1", "--after", "100ms"};
  std::vector<std::string> quiet{"--report-file", "none"};
  quiet.insert(quiet.end(), kill.begin(), kill.end());
  EXPECT_EQ(fault_there(quiet).status, 137);
  EXPECT_TRUE(folder.empty());
  const Ran ran = fault_there(kill);
  EXPECT_EQ(ran.status, 137);
  std::smatch match;
  ASSERT_TRUE(std::regex_search(ran.err, match, std::regex(R"(in (trireme-report-\d+\.json), as JSON)"))) << ran.err;
  const auto report = nlohmann::json::parse(read_whole(folder / match[1]));
  ASSERT_EQ(report["ranks"].size(), 3U);
  EXPECT_TRUE(report["ranks"][1]["cause"]);
  EXPECT_EQ(report["ranks"][1]["ended"], "was killed by signal 9 (Killed)");
  EXPECT_FALSE(report["ranks"][0]["cause"]);
  EXPECT_EQ(report["status"], 137);
  EXPECT_EQ(report["command"], (nlohmann::json{TRIREME_FAULT, "--kill", "1", "--after", "100ms"}));
  EXPECT_EQ(report["blamed"], nlohmann::json{1});
  for (const int other : {0, 2}) EXPECT_EQ(report["ranks"][other]["blames"], nlohmann::json{1});
  EXPECT_TRUE(std::regex_match(report["failed_at"].get<std::string>(),
                               std::regex(R"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)")))
      << report["failed_at"];
  for (const auto& rank : report["ranks"]) {
    EXPECT_FALSE(rank["host"].get<std::string>().empty());
    ASSERT_EQ(rank["recent"].size(), 16U);
    EXPECT_EQ(rank["recent"].back(), rank["last"]);
    for (std::size_t i = 1; i < 16; ++i) {
      EXPECT_EQ(rank["recent"][i]["operation"], rank["recent"][i - 1]["operation"].get<int>() + 1);
      EXPECT_TRUE(rank["recent"][i - 1]["finished"]);
    }
  }
}

TEST_P(Fault, ARunThatGoesWellSaysNothing) {
  const Ran ran = fault({"--for", "100ms"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(ran.out, "");
}

TEST_P(Fault, ARankThatEndsBeforeItJoinsKeepsNobodyWaiting) {
  const Ran ran =
      run(command(3, {"--timeout", "30s", "/bin/sh", "-c", fmt::format("[ $RANK = 1 ] || '{}'", TRIREME_FAULT)}), 60s);
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "exited with status 0 before it came to the rendezvous").size(), 2U) << ran.err;
  EXPECT_EQ(causes_of(ran), std::vector{1}) << ran.err;
}

TEST_P(Fault, ASignalToTheLauncherIsToldWithTheTable) {
  Started started(command(2, {"--report", "/bin/sh", "-c", fmt::format("echo up; exec '{}'", TRIREME_FAULT)}));
  ASSERT_TRUE(comes_true([&] { return contains(started.out(), "[0] up\n") && contains(started.out(), "[1] up\n"); }));
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 143);
  EXPECT_TRUE(contains(started.err(), "trireme run: got signal 15 (Terminated), as had all ranks\n")) << started.err();
}

// Lines are whole, and come when they are written.
TEST_P(Fault, WhatARankSaysIsNotLostWithIt) {
  const Ran ran = fault({"--kill", "1", "--after", "100ms"});
  EXPECT_EQ(ran.status, 137) << ran.err;
  EXPECT_EQ(ran.out, "[1] now: kill\n");
}

// At any moment, from before the ranks have met until well into their work. The launcher would end those that hang, so
// each has to say whom it misses, and to end by itself: it hears no SIGTERM, and has the time that a busy machine
// needs.
TEST_P(Fault, RanksKilledAtRandomMomentsLeaveNobodyHanging) {
  const std::set<std::string> before = shared_files();
  const TemporaryFolder folder;
  const TemporaryFolder scratch;
  const std::string program = folder / "fault";
  std::filesystem::create_symlink(TRIREME_FAULT, program);
  const char* const asked = std::getenv("TRIREME_TEST_KILLS");
  const int times = asked != nullptr ? std::stoi(asked) : 100;
  std::mt19937 random(17);
  for (int i = 0; i < times; ++i) {
    const int rank = std::uniform_int_distribution(0, 3)(random);
    const int after = std::uniform_int_distribution(0, 60)(random);
    SCOPED_TRACE(fmt::format("run {}, rank {} killed after {} ms", i, rank, after));
    const std::string script = fmt::format(
        "trap '' TERM; if [ $RANK = {0} ]; then sleep 0.{1:03} & s=$!; fi; '{2}' --for 30s & p=$!; "
        "if [ $RANK = {0} ]; then wait $s; kill -9 $p; fi; wait $p",
        rank, after, program);
    std::vector<std::string> all =
        command(4, {"--timeout", "30s", "--grace", "20s", "--report", "/bin/sh", "-c", script});
    all.insert(all.begin() + 1, {"TMPDIR=" + (scratch / "."), "XDG_RUNTIME_DIR=" + (scratch / ".")});
    const Ran ran = run(all, 60s);
    ASSERT_NE(ran.status, 0);
    ASSERT_NE(ran.status, 124) << ran.err;
    for (int other = 0; other < 4; ++other) {
      if (other == rank) continue;
      const auto said = lines_with(ran.err, fmt::format("[{}] ", other));
      ASSERT_EQ(said.size(), 1U) << "rank " << other << ": " << ran.err;
      ASSERT_TRUE(contains(said[0], fmt::format("rank {} (", rank))) << "rank " << other << ": " << ran.err;
      ASSERT_TRUE(std::regex_search(squeezed(ran.err),
                                    std::regex(fmt::format(R"(\n[* ] ?{} \d+( on \w)? exited with status 1 )", other))))
          << "rank " << other << ": " << ran.err;
    }
    ASSERT_EQ(causes_of(ran), std::vector{rank}) << ran.err;
    ASSERT_EQ(running(program), std::vector<std::string>());
  }
  EXPECT_EQ(shared_files(), before);
  EXPECT_EQ(files_in(scratch), std::set<std::string>());
}

INSTANTIATE_TEST_SUITE_P(All, Fault, ::testing::Values("shm", "tcp", "hosts"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace trireme
