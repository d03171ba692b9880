// The verifier on schedules made by hand: what it proves, what it counts, what it finds, and where.
#include "trireme/verify.h"

#include "support/brute_force.h"
#include "support/by_hand.h"
#include "trireme/program.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>

namespace trireme {
namespace {

using test::expect_found;
using test::prove;
using test::read;

TEST(Verify, ProvesOneRankWithNothingToDo) {
  for (int i = 0; i < kCollectives; ++i) {
    SCOPED_TRACE(i);
    const Schedule schedule{
        .algorithm = "alone", .collective = static_cast<Collective>(i), .programs = {Program{.blocks = 3}}};
    const Proof proof = verify(schedule);
    EXPECT_TRUE(proof.proven());
    EXPECT_TRUE(proof.same_bits);
    EXPECT_EQ(proof.rounds, 0);
    EXPECT_EQ(proof.sent, 0);
    EXPECT_EQ(proof.steps, 0U);
    EXPECT_EQ(proof.messages, 0U);
  }
}

// Messages.

TEST(Verify, FindsASendThatNobodyTakes) {
  expect_found(
      "ranks 2\nblocks 2\nrank 0\n  send 0..1 to 1\n  add 0..1 from 1\n  send 1 to 1\nrank 1\n  send 0..1 to 0\n"
      "  add 0..1 from 0\n",
      0, 2, 1, "rank 0, step 2 (send 1 to 1): block 1: rank 1 never takes this message");
}

TEST(Verify, FindsAReceiveThatNobodySends) {
  expect_found("ranks 3\nblocks 1\nrank 0\n  send 0 to 1\nrank 1\n  add 0 from 0\n  receive 0 from 2\nrank 2\n", 1, 1,
               0, "rank 1, step 1 (receive 0 from 2): block 0: no message: rank 2 sends fewer than rank 1 takes");
}

TEST(Verify, FindsMessagesOfAnotherSize) {
  expect_found("ranks 2\nblocks 4\nrank 0\n  send 0..2 to 1\nrank 1\n  add 1..2 from 0\n", 1, 0, 1,
               "rank 1, step 0 (add 1..2 from 0): block 1: the message has 3 blocks, not 2: it is rank 0, step 0 "
               "(send 0..2 to 1)");
}

// The k-th send meets the k-th receive, whatever blocks they name.
TEST(Verify, MatchesMessagesInTheOrderOfTheirChannel) {
  prove(
      "ranks 2\nblocks 2\ncollective all_to_all\nrank 0\n  send 1 to 1\n  receive 1 from 1\nrank 1\n  send 0 to 0\n"
      "  receive 0 from 0\n");
  expect_found(
      "ranks 2\nblocks 2\ncollective broadcast\nrank 0\n  send 0 to 1\n  send 1 to 1\nrank 1\n  receive 1 from 0\n"
      "  receive 0 from 0\n",
      1, 1, 0,
      "rank 1, step 1 (receive 0 from 0): block 0 holds what belongs in another block in the end, and this step is the "
      "last to change it");
}

// Deadlocks.

TEST(Verify, AcceptsExchanges) {
  // Both send before they add: the adds have begun, so that the sends can end, and then the adds can, too.
  prove("ranks 2\nblocks 1\nrank 0\n  send 0 to 1\n  add 0 from 1\nrank 1\n  send 0 to 0\n  add 0 from 0\n");
  // Recursive doubling.
  prove(
      "ranks 4\nblocks 1\n"
      "rank 0\n  send 0 to 1\n  add 0 from 1\n  send 0 to 2\n  add 0 from 2\n"
      "rank 1\n  send 0 to 0\n  add 0 from 0\n  send 0 to 3\n  add 0 from 3\n"
      "rank 2\n  send 0 to 3\n  add 0 from 3\n  send 0 to 0\n  add 0 from 0\n"
      "rank 3\n  send 0 to 2\n  add 0 from 2\n  send 0 to 1\n  add 0 from 1\n");
  // Three that all send to the next before they receive from the one before, into the same block.
  prove(
      "ranks 3\nblocks 1\ncollective barrier\n"
      "rank 0\n  send 0 to 1\n  add 0 from 2\n  send 0 to 1\n  add 0 from 2\n"
      "rank 1\n  send 0 to 2\n  add 0 from 0\n  send 0 to 2\n  add 0 from 0\n"
      "rank 2\n  send 0 to 0\n  add 0 from 1\n  send 0 to 0\n  add 0 from 1\n");
}

// Nothing orders steps on different blocks and channels, wherever they stand in their programs.
TEST(Verify, AcceptsStepsOnOtherBlocksInAnyOrder) {
  prove(
      "ranks 2\nblocks 2\n"
      "rank 0\n  add 0 from 1\n  send 1 to 1\n  receive 1 from 1\n  send 0 to 1\n"
      "rank 1\n  add 1 from 0\n  send 0 to 0\n  receive 0 from 0\n  send 1 to 0\n");
}

TEST(Verify, FindsTwoRanksThatWaitForEachOther) {
  expect_found("ranks 2\nblocks 1\nrank 0\n  add 0 from 1\n  send 0 to 1\nrank 1\n  add 0 from 0\n  send 0 to 0\n", 0,
               0, 0,
               "deadlock: rank 0, step 0 (add 0 from 1), block 0, waits for rank 1, step 1 (send 0 to 0), which waits "
               "for rank 1, "
               "step 0 (add 0 from 0), which waits for rank 0, step 1 (send 0 to 1), which waits for the first");
}

void expect_deadlock(std::string_view text, std::initializer_list<std::string_view> steps) {
  SCOPED_TRACE(text);
  const Schedule schedule = read(text);
  const Proof proof = verify(schedule);
  ASSERT_FALSE(proof.proven());
  const Finding& finding = *proof.finding;
  EXPECT_TRUE(finding.message.starts_with("deadlock: ")) << finding.message;
  for (const std::string_view step : steps) {
    EXPECT_NE(finding.message.find(step), std::string::npos) << step << " is not in: " << finding.message;
  }
  // The finding's numbers are those of the first step that the message names.
  const Step& step = schedule.programs.at(finding.rank).steps.at(finding.step);
  EXPECT_EQ(finding.block, step.run.first);
  const std::string first = "deadlock: rank " + std::to_string(finding.rank) + ", step " + std::to_string(finding.step);
  EXPECT_TRUE(finding.message.starts_with(first)) << finding.message;
  EXPECT_NE(test::BruteForce(schedule).run(test::Sends::waiting, 1), "");
}

TEST(Verify, FindsACycleOfThreeRanks) {
  expect_deadlock(
      "ranks 3\nblocks 1\n"
      "rank 0\n  add 0 from 2\n  send 0 to 1\n"
      "rank 1\n  add 0 from 0\n  send 0 to 2\n"
      "rank 2\n  add 0 from 1\n  send 0 to 0\n",
      {"rank 0, step 0 (add 0 from 2)", "rank 0, step 1 (send 0 to 1)", "rank 1, step 0 (add 0 from 0)",
       "rank 1, step 1 (send 0 to 2)", "rank 2, step 0 (add 0 from 1)", "rank 2, step 1 (send 0 to 0)"});
}

// The messages of a channel come in order, so that one which can't be sent yet holds up the one behind it: rank 1 can't
// send block 0 before it hears of rank 0, who waits for block 1.
TEST(Verify, FindsAMessageThatHoldsUpTheOneBehindIt) {
  expect_deadlock(
      "ranks 2\nblocks 2\ncollective barrier\n"
      "rank 0\n  add 0 from 1\n  add 1 from 1\n  send 1 to 1\n  send 1 to 1\n"
      "rank 1\n  add 0 from 0\n  add 1 from 0\n  send 0 to 0\n  send 1 to 0\n",
      {"rank 1, step 2 (send 0 to 0)", "rank 1, step 0 (add 0 from 0)", "rank 0, step 2 (send 1 to 1)",
       "rank 0, step 1 (add 1 from 1)", "rank 1, step 3 (send 1 to 0)"});
  prove(
      "ranks 2\nblocks 2\ncollective barrier\n"
      "rank 0\n  add 1 from 1\n  add 0 from 1\n  send 1 to 1\n  send 1 to 1\n"
      "rank 1\n  send 1 to 0\n  add 0 from 0\n  add 1 from 0\n  send 0 to 0\n");
}

// Rank 0's first send can be buffered, and then all goes well. If it waits for its receive then rank 0 never hears from
// rank 2: rank 1 takes that message only after a send of its own, which waits for rank 2, which waits for rank 0.
TEST(Verify, RejectsWhatOnlyBufferedSendsSurvive) {
  const std::string_view text =
      "ranks 3\nblocks 1\ncollective barrier\n"
      "rank 0\n  send 0 to 1\n  add 0 from 2\n  send 0 to 2\n  add 0 from 2\n"
      "rank 1\n  add 0 from 2\n  send 0 to 2\n  add 0 from 0\n"
      "rank 2\n  send 0 to 0\n  add 0 from 0\n  send 0 to 1\n  add 0 from 1\n  send 0 to 0\n";
  expect_deadlock(text, {"rank 0, step 0 (send 0 to 1)", "rank 1, step 2 (add 0 from 0)",
                         "rank 1, step 1 (send 0 to 2)", "rank 2, step 1 (add 0 from 0)"});
  const Schedule schedule = read(text);
  EXPECT_EQ(test::BruteForce(schedule).run(test::Sends::buffered, 1), "");
  // Without that send in between, the message from rank 0 can come in to the side, early.
  prove(
      "ranks 3\nblocks 1\ncollective barrier\n"
      "rank 0\n  send 0 to 1\n  add 0 from 2\n  send 0 to 2\n  add 0 from 1\n"
      "rank 1\n  add 0 from 2\n  add 0 from 0\n  send 0 to 0\n  send 0 to 2\n"
      "rank 2\n  send 0 to 0\n  add 0 from 0\n  send 0 to 1\n  add 0 from 1\n");
}

// Values.

TEST(Verify, FindsAContributionThatCountsTwice) {
  expect_found(
      "ranks 2\nblocks 2\nrank 0\n  send 0..1 to 1\n  send 1 to 1\nrank 1\n  add 0..1 from 0\n  add 1 from 0\n", 1, 1,
      1, "rank 1, step 1 (add 1 from 0): block 1 would count rank 0's contribution twice");
  // Rank 2 hears of rank 0 directly and by way of rank 1.
  expect_found(
      "ranks 3\nblocks 1\ncollective reduce\nroot 2\nrank 0\n  send 0 to 1\n  send 0 to 2\n"
      "rank 1\n  add 0 from 0\n  send 0 to 2\nrank 2\n  add 0 from 0\n  add 0 from 1\n",
      2, 1, 0, "rank 2, step 1 (add 0 from 1): block 0 would count rank 0's contribution twice");
}

TEST(Verify, FindsWhatIsUsedBeforeItIsThere) {
  // Rank 0 does not start with block 1 of an allgather.
  expect_found(
      "ranks 2\nblocks 2\ncollective allgather\nrank 0\n  send 0..1 to 1\n  receive 1 from 1\n"
      "rank 1\n  receive 0..1 from 0\n  send 1 to 0\n",
      0, 0, 1, "rank 0, step 0 (send 0..1 to 1): block 1 is sent but holds nothing yet");
  expect_found("ranks 2\nblocks 2\ncollective broadcast\nrank 0\n  send 0..1 to 1\nrank 1\n  add 0..1 from 0\n", 1, 0,
               0, "rank 1, step 0 (add 0..1 from 0): block 0 is added to but holds nothing yet");
  // A server starts with nothing.
  expect_found(
      "ranks 3\nblocks 1\nservers 1\nrank 0\n  send 0 to 2\n  receive 0 from 2\nrank 1\n  send 0 to 2\n"
      "  receive 0 from 2\nrank 2\n  add 0 from 0\n  add 0 from 1\n  send 0 to 0\n  send 0 to 1\n",
      2, 0, 0, "rank 2, step 0 (add 0 from 0): block 0 is added to but holds nothing yet");
}

TEST(Verify, HoldsServersToNothing) {
  const Proof proof = prove(
      "ranks 3\nblocks 1\nservers 1\nrank 0\n  send 0 to 2\n  receive 0 from 2\nrank 1\n  send 0 to 2\n"
      "  receive 0 from 2\nrank 2\n  receive 0 from 0\n  add 0 from 1\n  send 0 to 0\n  send 0 to 1\n");
  EXPECT_EQ(proof.sent, 2);
  // Shares are those of the workers.
  prove(
      "ranks 3\nblocks 2\nservers 1\ncollective allgather\nrank 0\n  send 0 to 2\n  receive 1 from 2\n"
      "rank 1\n  send 1 to 2\n  receive 0 from 2\nrank 2\n  receive 0 from 0\n  receive 1 from 1\n"
      "  send 1 to 0\n  send 0 to 1\n");
}

// What it counts.

TEST(Verify, KnowsWhoseBitsAreTheSame) {
  // Two ranks that exchange: a + b and b + a.
  EXPECT_TRUE(prove("ranks 2\nblocks 1\nrank 0\n  send 0 to 1\n  add 0 from 1\nrank 1\n  send 0 to 0\n  add 0 from 0\n")
                  .same_bits);
  // Three that all send everything: (a + b) + c, (b + c) + a, (c + a) + b.
  EXPECT_FALSE(prove("ranks 3\nblocks 1\nrank 0\n  send 0 to 1\n  send 0 to 2\n  add 0 from 1\n  add 0 from 2\n"
                     "rank 1\n  send 0 to 2\n  send 0 to 0\n  add 0 from 2\n  add 0 from 0\n"
                     "rank 2\n  send 0 to 0\n  send 0 to 1\n  add 0 from 0\n  add 0 from 1\n")
                   .same_bits);
  // The same where rank 1 adds a to b first, as rank 0 adds b to a; but rank 2 adds a + b to c: only sides differ.
  EXPECT_TRUE(prove("ranks 3\nblocks 1\nrank 0\n  send 0 to 1\n  add 0 from 1\n  send 0 to 2\n  add 0 from 2\n"
                    "rank 1\n  send 0 to 0\n  add 0 from 0\n  add 0 from 2\n"
                    "rank 2\n  send 0 to 0\n  send 0 to 1\n  add 0 from 0\n")
                  .same_bits);
  // Four: (a + b) + (c + d) on ranks 0 to 2, ((a + b) + c) + d on rank 3, and only for block 1.
  EXPECT_FALSE(prove("ranks 4\nblocks 2\n"
                     "rank 0\n  add 0..1 from 1\n  send 1 to 3\n  add 0..1 from 2\n  send 0..1 to 1\n  send 0..1 to 2\n"
                     "  send 0 to 3\n"
                     "rank 1\n  send 0..1 to 0\n  receive 0..1 from 0\n"
                     "rank 2\n  send 1 to 3\n  add 0..1 from 3\n  send 0..1 to 0\n  receive 0..1 from 0\n"
                     "rank 3\n  send 0..1 to 2\n  add 1 from 0\n  add 1 from 2\n  receive 0 from 0\n")
                   .same_bits);
  // Only one rank of each wants the sum.
  EXPECT_TRUE(
      prove("ranks 3\nblocks 1\ncollective reduce\nrank 0\n  add 0 from 1\n  add 0 from 2\nrank 1\n  send 0 to 0\n"
            "rank 2\n  send 0 to 0\n")
          .same_bits);
}

TEST(Verify, CountsRoundsAlongTheLongestChain) {
  struct Case {
    int rounds;
    std::string_view text;
  };
  const Case cases[] = {
      // All to one is one round, however many there are.
      {1,
       "ranks 4\nblocks 1\ncollective reduce\nrank 0\n  add 0 from 1\n  add 0 from 2\n  add 0 from 3\n"
       "rank 1\n  send 0 to 0\nrank 2\n  send 0 to 0\nrank 3\n  send 0 to 0\n"},
      // Down a line, one after another.
      {3,
       "ranks 4\nblocks 1\ncollective broadcast\nrank 0\n  send 0 to 1\nrank 1\n  receive 0 from 0\n  send 0 to 2\n"
       "rank 2\n  receive 0 from 1\n  send 0 to 3\nrank 3\n  receive 0 from 2\n"},
      // A second block on the same line goes beside the first one.
      {2,
       "ranks 3\nblocks 2\ncollective broadcast\nrank 0\n  send 0 to 1\n  send 1 to 1\n"
       "rank 1\n  receive 0 from 0\n  send 0 to 2\n  receive 1 from 0\n  send 1 to 2\n"
       "rank 2\n  receive 0 from 1\n  receive 1 from 1\n"},
      // An exchange is one round: that a send waits for its receive is none.
      {1, "ranks 2\nblocks 1\nrank 0\n  send 0 to 1\n  add 0 from 1\nrank 1\n  send 0 to 0\n  add 0 from 0\n"},
      // To the root and back.
      {2,
       "ranks 3\nblocks 1\nrank 0\n  add 0 from 1\n  add 0 from 2\n  send 0 to 1\n  send 0 to 2\n"
       "rank 1\n  send 0 to 0\n  receive 0 from 0\nrank 2\n  send 0 to 0\n  receive 0 from 0\n"},
      // In the channel from 1 to 2, block 1 stands behind block 0, which has come a round further already; or before
      // it.
      {3,
       "ranks 4\nblocks 4\ncollective gather\nroot 3\nrank 0\n  send 0 to 3\n  send 0 to 1\n"
       "rank 1\n  receive 0 from 0\n  send 0 to 2\n  send 1 to 2\n"
       "rank 2\n  receive 0 from 1\n  receive 1 from 1\n  send 1..2 to 3\n"
       "rank 3\n  receive 0 from 0\n  receive 1..2 from 2\n"},
      {2,
       "ranks 4\nblocks 4\ncollective gather\nroot 3\nrank 0\n  send 0 to 3\n  send 0 to 1\n"
       "rank 1\n  receive 0 from 0\n  send 1 to 2\n  send 0 to 2\n"
       "rank 2\n  receive 1 from 1\n  receive 0 from 1\n  send 1..2 to 3\n"
       "rank 3\n  receive 0 from 0\n  receive 1..2 from 2\n"},
      // Rank 0's send to 1 waits for a receive that can begin only in the second round; but no send need wait.
      {2,
       "ranks 5\nblocks 1\ncollective reduce\nroot 4\n"
       "rank 0\n  send 0 to 4\n  send 0 to 1\n  receive 0 from 2\n  send 0 to 3\n"
       "rank 1\n  send 0 to 4\n  receive 0 from 3\n  send 0 to 2\n  receive 0 from 0\n"
       "rank 2\n  send 0 to 4\n  send 0 to 0\n  receive 0 from 1\n"
       "rank 3\n  send 0 to 4\n  send 0 to 1\n  receive 0 from 0\n"
       "rank 4\n  add 0 from 0\n  add 0 from 1\n  add 0 from 2\n  add 0 from 3\n"},
  };
  for (const Case& one : cases) EXPECT_EQ(prove(one.text).rounds, one.rounds) << one.text;
}

TEST(Verify, CountsWhatTheBusiestRankSends) {
  const Proof proof = prove(
      "ranks 3\nblocks 4\ncollective broadcast\nrank 0\n  send 0..3 to 1\n  send 0..1 to 2\n"
      "rank 1\n  receive 0..3 from 0\n  send 2..3 to 2\nrank 2\n  receive 0..1 from 0\n  receive 2..3 from 1\n");
  EXPECT_DOUBLE_EQ(proof.sent, 1.5);
  EXPECT_EQ(proof.steps, 6U);
  EXPECT_EQ(proof.messages, 3U);
  EXPECT_EQ(proof.rounds, 2);
}

// Schedules that no text could describe.

Schedule two_ranks() { return read("ranks 2\nblocks 2\nrank 0\n  send 0..1 to 1\nrank 1\n  add 0..1 from 0\n"); }

TEST(Verify, RejectsWhatIsNoSchedule) {
  constexpr int kHuge = std::numeric_limits<int>::max();
  constexpr int kLeast = std::numeric_limits<int>::min();
  EXPECT_EQ(verify(Schedule{}).finding->message, "the schedule has no rank that contributes");

  Schedule schedule = two_ranks();
  for (const int servers : {2, 3, kHuge}) {
    schedule.servers = servers;
    EXPECT_EQ(verify(schedule).finding->message, "the schedule has no rank that contributes");
  }
  schedule.servers = -1;
  EXPECT_EQ(verify(schedule).finding->message, "there can't be -1 servers");

  schedule = two_ranks();
  for (const int root : {2, -1, kHuge, kLeast}) {
    schedule.root = root;
    EXPECT_EQ(verify(schedule).finding->message, "there is no rank " + std::to_string(root) + " to be root");
  }

  schedule = two_ranks();
  schedule.programs[1].blocks = 3;
  EXPECT_EQ(verify(schedule).finding->rank, 1);
  EXPECT_EQ(verify(schedule).finding->message, "rank 1 cuts its buffer into 3 blocks, rank 0 into 2");

  for (const int blocks : {0, -1, kLeast}) {
    for (Program& program : schedule.programs) program.blocks = blocks;
    EXPECT_EQ(verify(schedule).finding->message, "a buffer can't be cut into " + std::to_string(blocks) + " blocks");
  }

  EXPECT_EQ(verify(read("ranks 2\nblocks 3\ncollective allgather\nrank 0\nrank 1\n")).finding->message,
            "3 blocks do not make 2 equal shares");
  EXPECT_EQ(verify(read("ranks 3\nblocks 3\nservers 1\ncollective scatter\nrank 0\nrank 1\nrank 2\n")).finding->message,
            "3 blocks do not make 2 equal shares");
}

TEST(Verify, RejectsStepsThatNameWhatIsNotThere) {
  constexpr int kHuge = std::numeric_limits<int>::max();
  for (const int peer : {-1, 1, 2, kHuge}) {
    Schedule schedule = two_ranks();
    schedule.programs[1].send(1, peer);
    const Proof proof = verify(schedule);
    ASSERT_FALSE(proof.proven());
    EXPECT_EQ(proof.finding->rank, 1);
    EXPECT_EQ(proof.finding->step, 1);
    EXPECT_EQ(proof.finding->message, "rank 1, step 1, block 1: there is no such peer as " + std::to_string(peer));
  }
  for (const trireme::Run run :
       {trireme::Run(2), trireme::Run(-1), trireme::Run(0, 3), trireme::Run(1, 2), trireme::Run(0, 0),
        trireme::Run(0, -1), trireme::Run(1, kHuge), trireme::Run(kHuge, kHuge), trireme::Run(kHuge)}) {
    Schedule schedule = two_ranks();
    schedule.programs[0].send(run, 1);
    const Proof proof = verify(schedule);
    ASSERT_FALSE(proof.proven());
    EXPECT_EQ(proof.finding->rank, 0);
    EXPECT_EQ(proof.finding->step, 1);
    EXPECT_EQ(proof.finding->block, run.first);
    EXPECT_EQ(proof.finding->message,
              "rank 0, step 1, block " + std::to_string(run.first) + ": there is no such block");
  }
}

}  // namespace
}  // namespace trireme
