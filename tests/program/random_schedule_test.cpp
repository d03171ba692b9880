// The verifier against brute force on random schedules, which deadlock often.
#include "support/brute_force.h"
#include "support/random.h"
#include "trireme/program.h"
#include "trireme/verify.h"

#include <gtest/gtest.h>

#include <string>

namespace trireme {
namespace {

// A few messages between a few ranks; the steps stand anywhere in their programs. A barrier, so that any block may be
// sent and added at any time.
Schedule random_schedule(test::Random& random) {
  Schedule schedule{.algorithm = "random", .collective = Collective::barrier};
  const int blocks = random.between(1, 3);
  schedule.programs.assign(random.between(2, 4), Program{.blocks = blocks});
  const auto insert = [&](int rank, Action action, int peer, int count) {
    auto& steps = schedule.programs[rank].steps;
    const trireme::Run run(random.below(blocks - count + 1), count);
    const int last = static_cast<int>(steps.size());
    const int at = random.chance(3) ? random.below(last + 1) : last;
    steps.insert(steps.begin() + at, {action, peer, run});
  };
  const int count = random.chance(2) ? 1 : random.between(1, blocks);
  for (int messages = random.between(2, 14); messages > 0; --messages) {
    const int from = random.below(schedule.ranks());
    const int to = (from + random.between(1, schedule.ranks() - 1)) % schedule.ranks();
    insert(from, Action::send, to, count);
    insert(to, random.chance(4) ? Action::receive : Action::add, from, count);
  }
  return schedule;
}

TEST(RandomSchedules, DeadlockWhenTheVerifierSaysSo) {
  test::Random random(8);
  const int tries = 3000 * test::kEffort;
  int proven = 0;
  int deadlocks = 0;
  int only_when_sends_wait = 0;
  for (int i = 0; i < tries; ++i) {
    const Schedule schedule = random_schedule(random);
    const Proof proof = verify(schedule);
    const bool deadlock = !proof.proven() && proof.finding->message.starts_with("deadlock: ");
    test::BruteForce force(schedule);
    for (const std::uint64_t seed : {1, 2}) {
      const std::string waiting = force.run(test::Sends::waiting, seed);
      const std::string buffered = force.run(test::Sends::buffered, seed);
      ASSERT_EQ(waiting.ends_with("never ends"), deadlock) << i << ": " << waiting << '\n' << to_text(schedule);
      ASSERT_EQ(waiting.empty(), proof.proven()) << i << ": " << waiting << '\n' << to_text(schedule);
      if (deadlock) {
        only_when_sends_wait += buffered.ends_with("never ends") ? 0 : 1;
      } else {
        ASSERT_EQ(buffered, waiting) << i << '\n' << to_text(schedule);
      }
    }
    if (proof.proven()) ++proven;
    if (deadlock) ++deadlocks;
  }
  EXPECT_GT(proven, tries / 100);
  EXPECT_GT(deadlocks, tries / 10);
  EXPECT_LT(deadlocks, tries / 10 * 9);
  EXPECT_GT(only_when_sends_wait, 0);
}

}  // namespace
}  // namespace trireme
