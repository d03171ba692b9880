// Faults between hosts, which are network namespaces here: where those can't be had, these tests are skipped.
#include "cli/left_behind.h"
#include "cli/netlab.h"
#include "support/launched.h"
#include "support/random.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace trireme {
namespace {

class HostFault : public test::NetlabTest {
 protected:
  HostFault() { std::filesystem::create_symlink(TRIREME_FAULT, program_); }

  static Ran shell(const std::string& script) { return run({"/bin/sh", "-c", script}, 60s); }

  // The example on all hosts; what happens to one rank does not end the others. Each line of a rank's error begins with
  // the second it was said in. A rank that has come to its first collective leaves a file.
  Ran fault(const std::string& arguments, const std::string& meanwhile) const {
    const std::string rank = fmt::format(
        R"(TRIREME_LOG=info "$@" {} 2>&1 | while read -r line; do case "$line" in )"
        R"(*": allreduce of "*" runs by "*) : > {}/$RANK ;; "trireme: "*) ;; *) echo "$(date +%s.%N) $line" ;; esac; done)",
        arguments, at_work_ / ".");
    return shell(
        fmt::format("({}) & TMPDIR={} XDG_RUNTIME_DIR={} '{}' each --name {} sh -c '{}' rank '{}'; rm -f {}/*; wait",
                    meanwhile, scratch_ / ".", scratch_ / ".", TRIREME_NETLAB, name(), rank, program_, at_work_ / "."));
  }

  std::string when_all_are_at_work() const {
    return fmt::format("cd {}; for i in $(seq 600); do [ -e 0 ] && [ -e 1 ] && [ -e 2 ] && break; sleep 0.05; done; ",
                       at_work_ / ".");
  }

  TemporaryFolder at_work_;
  TemporaryFolder scratch_;  // for what ranks write themselves
  TemporaryFolder folder_;
  const std::string program_ = folder_ / "fault";  // by a path that no other test's processes have
};

// "[1] 1794809054.5 rank 2 ..." says when.
double time_of(const std::string& line) { return std::stod(line.substr(line.find(' ') + 1)); }

// Each of these ranks says one thing, with these words in it. Returns how long after the line that tells of the `harm`,
// if any, the last of them did.
double expect_said(const Ran& ran, const std::vector<std::string>& by, const std::vector<std::string>& words,
                   const std::string& harm = "") {
  const auto done = lines_with(ran.out, harm);
  double most = 0;
  for (const std::string& rank : by) {
    const auto said = lines_with(ran.out, rank);
    if (said.size() != 1 || (!harm.empty() && done.size() != 1)) {
      ADD_FAILURE() << ran.out << ran.err;
      return 0;
    }
    for (const std::string& word : words) EXPECT_TRUE(contains(said[0], word)) << said[0];
    if (!harm.empty()) most = std::max(most, time_of(said[0]) - time_of(done[0]));
  }
  return most;
}

TEST_F(HostFault, AHostThatIsCutOffIsNamedWithinTheLivenessTime) {
  const Ran ran = fault("--deadline 50s",
                        when_all_are_at_work() + fmt::format("ip netns exec trireme-{}-switch ip link set port2 down; "
                                                             "echo [cut] $(date +%s.%N)",
                                                             name()));
  // 8 s of silence, which is noticed within 2 s, and what a busy machine takes.
  constexpr double kLimit = test::kEffort == 1 ? 20 : 13;
  EXPECT_LT(expect_said(ran, {"[0]", "[1]"}, {"rank 2 (", "is gone (its host has been silent"}, "[cut]"), kLimit);
}

// The rank is ended by its id, which all others' messages name. With a sanitizer it may take longer.
TEST_F(HostFault, ARankKilledOnAnotherHostIsNamedWithinTwoSeconds) {
  constexpr double kTwoSeconds = test::kEffort == 1 ? 10 : 2;
  MedianOf5 times(kTwoSeconds);
  while (!times.known()) {
    const Ran ran = fault("--deadline 50s",
                          when_all_are_at_work() +
                              fmt::format("for pid in $(ip netns pids trireme-{}-1); do "
                                          "if [ $(cat /proc/$pid/comm) = fault ]; then echo [killed] $(date +%s.%N); "
                                          "kill -9 $pid; fi; done",
                                          name()));
    times.add(expect_said(ran, {"[0]", "[2]"}, {"rank 1 (", "is gone ("}, "[killed]"));
  }
  EXPECT_LT(times.median(), kTwoSeconds);
}

TEST_F(HostFault, ARankStoppedOnAnotherHostIsNamedAtTheDeadline) {
  const Ran ran =
      fault("--stop 1 --after 500ms --deadline 2s",
            fmt::format("sleep 8; for pid in $(ip netns pids trireme-{}-1); do kill -9 $pid; done", name()));
  expect_said(ran, {"[0]", "[2]"}, {"for rank 1 ("});
}

// Nobody who started them could be asked: of a rank that is stopped, its neighbours tell the other host.
TEST_F(HostFault, WhatARankStoppedOnAnotherHostDidLastIsToldByItsNeighbours) {
  const std::string rank = fmt::format(
      "RANK=$rank WORLD_SIZE=4 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 TMPDIR={0} XDG_RUNTIME_DIR={0} '{1}' run --name "
      "{2} $((rank / 2)) '{3}' --stop 3 --after 300ms --deadline 3s",
      scratch_ / ".", TRIREME_NETLAB, name(), program_);
  const Ran ran = shell(fmt::format(
      "for rank in 0 1 2 3; do {} & eval pid$rank=$!; done; wait $pid0 $pid1 $pid2; kill -9 $pid3; wait", rank));
  const auto said = lines_with(ran.err, "for rank 3 (");
  ASSERT_EQ(said.size(), 3U) << ran.err;
  for (const std::string& line : said) {
    EXPECT_TRUE(contains(line, "3 of 4 ranks are in it; rank 3 (")) << line;
    EXPECT_TRUE(contains(line, ") ended operation ")) << line;
  }
}

TEST_F(HostFault, RanksKilledAtRandomMomentsLeaveNobodyHanging) {
  const std::set<std::string> before = shared_files();
  std::mt19937 random(23);
  for (int i = 0; i < 100; ++i) {
    const int rank = std::uniform_int_distribution(0, 2)(random);
    const int after = std::uniform_int_distribution(0, 300)(random);
    const auto begin = std::chrono::steady_clock::now();
    const Ran ran = fault(fmt::format("--kill {} --after {}ms --deadline 50s", rank, after), "true");
    ASSERT_LT(std::chrono::steady_clock::now() - begin, 30s) << ran.out << ran.err;
    const auto named = lines_with(ran.out, fmt::format("rank {} (", rank));
    ASSERT_EQ(named.size(), 2U) << "run " << i << ": " << ran.out << ran.err;
    ASSERT_EQ(running(program_), std::vector<std::string>());
  }
  EXPECT_EQ(shared_files(), before);
  EXPECT_EQ(files_in(scratch_), std::set<std::string>());
}

}  // namespace
}  // namespace trireme
