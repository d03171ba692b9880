// Faults between hosts, which are network namespaces here: where those can't be had, these tests are skipped.
#include "cli/netlab.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace trireme {
namespace {

using namespace std::chrono_literals;

class HostFault : public test::NetlabTest {
 protected:
  static Ran shell(const std::string& script) { return run({"/bin/sh", "-c", script}, 60s); }

  // The example on all hosts; what happens to one rank does not end the others. Each line of a rank's error begins with
  // the second it was said in. A rank that has come to its first collective leaves a file.
  Ran fault(const std::string& arguments, const std::string& meanwhile) const {
    const std::string rank = fmt::format(
        R"(TRIREME_LOG=info "$@" {} 2>&1 | while read -r line; do case "$line" in )"
        R"(*": allreduce of "*" runs by "*) : > {}/$RANK ;; "trireme: "*) ;; *) echo "$(date +%s.%N) $line" ;; esac; done)",
        arguments, at_work_ / ".");
    return shell(fmt::format("({}) & '{}' each --name {} sh -c '{}' rank '{}'; rm -f {}/*; wait", meanwhile,
                             TRIREME_NETLAB, name(), rank, TRIREME_FAULT, at_work_ / "."));
  }

  std::string when_all_are_at_work() const {
    return fmt::format("cd {}; until [ -e 0 ] && [ -e 1 ] && [ -e 2 ]; do sleep 0.05; done; ", at_work_ / ".");
  }

  TemporaryFolder at_work_;
};

std::vector<std::string> lines_of(const std::string& text, const std::string& word) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(word) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

// "[1] 1794809054.5 rank 2 ..." says when.
double time_of(const std::string& line) { return std::stod(line.substr(line.find(' ') + 1)); }

TEST_F(HostFault, AHostThatIsCutOffIsNamedWithinTheLivenessTime) {
  const Ran ran = fault("--deadline 50s",
                        when_all_are_at_work() + fmt::format("ip netns exec trireme-{}-switch ip link set port2 down; "
                                                             "echo [cut] $(date +%s.%N)",
                                                             name()));
  const auto cut = lines_of(ran.out, "[cut]");
  ASSERT_EQ(cut.size(), 1U) << ran.out << ran.err;
  for (const char* rank : {"[0]", "[1]"}) {
    const auto said = lines_of(ran.out, rank);
    ASSERT_EQ(said.size(), 1U) << ran.out << ran.err;
    EXPECT_NE(said[0].find("rank 2 ("), std::string::npos) << said[0];
    EXPECT_NE(said[0].find("is gone (its host has been silent"), std::string::npos) << said[0];
    EXPECT_LT(time_of(said[0]) - time_of(cut[0]), 20) << "8 s, and what a busy machine takes";
  }
}

// The rank is ended by its id, which all others' messages name.
TEST_F(HostFault, ARankKilledOnAnotherHostIsNamedAtOnce) {
  const Ran ran = fault(
      "--deadline 50s",
      when_all_are_at_work() + fmt::format("for pid in $(ip netns pids trireme-{}-1); do "
                                           "if [ $(cat /proc/$pid/comm) = fault ]; then echo [killed] $(date +%s.%N); "
                                           "kill -9 $pid; fi; done",
                                           name()));
  const auto killed = lines_of(ran.out, "[killed]");
  ASSERT_EQ(killed.size(), 1U) << ran.out << ran.err;
  for (const char* rank : {"[0]", "[2]"}) {
    const auto said = lines_of(ran.out, rank);
    ASSERT_EQ(said.size(), 1U) << ran.out << ran.err;
    EXPECT_NE(said[0].find("rank 1 ("), std::string::npos) << said[0];
    EXPECT_NE(said[0].find("is gone ("), std::string::npos) << said[0];
    EXPECT_LT(time_of(said[0]) - time_of(killed[0]), 5) << "2 s, and what a busy machine takes";
  }
}

TEST_F(HostFault, ARankStoppedOnAnotherHostIsNamedAtTheDeadline) {
  const Ran ran =
      fault("--stop 1 --after 500ms --deadline 2s",
            fmt::format("sleep 8; for pid in $(ip netns pids trireme-{}-1); do kill -9 $pid; done", name()));
  for (const char* rank : {"[0]", "[2]"}) {
    const auto said = lines_of(ran.out, rank);
    ASSERT_EQ(said.size(), 1U) << ran.out << ran.err;
    EXPECT_NE(said[0].find("for rank 1 ("), std::string::npos) << said[0];
  }
}

TEST_F(HostFault, RanksKilledAtRandomMomentsLeaveNobodyHanging) {
  std::mt19937 random(23);
  for (int i = 0; i < 25; ++i) {
    const int rank = std::uniform_int_distribution(0, 2)(random);
    const int after = std::uniform_int_distribution(0, 300)(random);
    const auto begin = std::chrono::steady_clock::now();
    const Ran ran = fault(fmt::format("--kill {} --after {}ms --deadline 50s", rank, after), "true");
    ASSERT_LT(std::chrono::steady_clock::now() - begin, 30s) << ran.out << ran.err;
    const auto named = lines_of(ran.out, fmt::format("rank {} (", rank));
    ASSERT_EQ(named.size(), 2U) << "run " << i << ": " << ran.out << ran.err;
  }
}

}  // namespace
}  // namespace trireme
