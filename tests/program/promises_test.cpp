// What each collective promises, kept and broken by hand.
#include "support/by_hand.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using test::expect_found;
using test::kNone;
using test::prove;

TEST(Promise, OfAllreduce) {
  expect_found("ranks 2\nblocks 1\nrank 0\n  send 0 to 1\nrank 1\n  add 0 from 0\n", 0, kNone, 0,
               "rank 0: block 0 lacks rank 1's contribution in the end, and no step changes it");
  expect_found(
      "ranks 3\nblocks 2\nrank 0\n  send 0..1 to 1\n  receive 0..1 from 1\nrank 1\n  add 0..1 from 0\n"
      "  send 0..1 to 0\nrank 2\n",
      0, 1, 0,
      "rank 0, step 1 (receive 0..1 from 1): block 0 lacks rank 2's contribution in the end, and this step is "
      "the last to change it");
  // The sum of block 0 and block 1.
  expect_found(
      "ranks 2\nblocks 2\nrank 0\n  send 0 to 1\n  send 1 to 1\n  receive 0..1 from 1\nrank 1\n  add 1 from 0\n"
      "  add 0 from 0\n  send 0..1 to 0\n",
      0, 2, 0,
      "rank 0, step 2 (receive 0..1 from 1): block 0 holds what belongs in another block in the end, and this step is "
      "the last to change it");
}

TEST(Promise, OfReduceScatter) {
  prove(
      "ranks 2\nblocks 4\ncollective reduce_scatter\nrank 0\n  send 2..3 to 1\n  add 0..1 from 1\n"
      "rank 1\n  send 0..1 to 0\n  add 2..3 from 0\n");
  // Each sums up the other one's share.
  expect_found(
      "ranks 2\nblocks 2\ncollective reduce_scatter\nrank 0\n  send 0 to 1\n  add 1 from 1\n"
      "rank 1\n  send 1 to 0\n  add 0 from 0\n",
      0, kNone, 0, "rank 0: block 0 lacks rank 1's contribution in the end, and no step changes it");
}

TEST(Promise, OfAllgather) {
  prove(
      "ranks 2\nblocks 4\ncollective allgather\nrank 0\n  send 0..1 to 1\n  receive 2..3 from 1\n"
      "rank 1\n  send 2..3 to 0\n  receive 0..1 from 0\n");
  expect_found("ranks 2\nblocks 2\ncollective allgather\nrank 0\n  send 0 to 1\nrank 1\n  receive 0 from 0\n", 0, kNone,
               1, "rank 0: block 1 holds nothing in the end, and no step changes it");
  expect_found(
      "ranks 2\nblocks 2\ncollective allgather\nrank 0\n  send 0 to 1\n  receive 1 from 1\n"
      "rank 1\n  receive 0 from 0\n  send 0 to 0\n",
      0, 1, 1,
      "rank 0, step 1 (receive 1 from 1): block 1 holds what belongs in another block in the end, and this step is the "
      "last to change it");
}

TEST(Promise, OfBroadcast) {
  prove(
      "ranks 3\nblocks 2\ncollective broadcast\nroot 1\nrank 0\n  receive 0..1 from 1\n  send 0..1 to 2\n"
      "rank 1\n  send 0..1 to 0\nrank 2\n  receive 0..1 from 0\n");
  expect_found(
      "ranks 3\nblocks 1\ncollective broadcast\nroot 1\nrank 0\n  receive 0 from 1\n"
      "rank 1\n  send 0 to 0\nrank 2\n",
      2, kNone, 0, "rank 2: block 0 holds nothing in the end, and no step changes it");
  // The sum of what the root has twice.
  expect_found(
      "ranks 2\nblocks 2\ncollective broadcast\nrank 0\n  send 0 to 1\n  send 1 to 1\n  send 1 to 1\n"
      "rank 1\n  receive 0 from 0\n  receive 1 from 0\n  add 1 from 0\n",
      1, 2, 1, "rank 1, step 2 (add 1 from 0): block 1 would count rank 0's contribution twice");
}

TEST(Promise, OfReduce) {
  prove(
      "ranks 3\nblocks 1\ncollective reduce\nroot 2\nrank 0\n  send 0 to 2\nrank 1\n  send 0 to 2\n"
      "rank 2\n  add 0 from 0\n  add 0 from 1\n");
  expect_found(
      "ranks 3\nblocks 1\ncollective reduce\nroot 2\nrank 0\n  send 0 to 2\nrank 1\n  send 0 to 2\n"
      "rank 2\n  add 0 from 0\n  receive 0 from 1\n",
      2, 1, 0,
      "rank 2, step 1 (receive 0 from 1): block 0 lacks rank 0's contribution in the end, and this step is the "
      "last to change it");
}

TEST(Promise, OfGather) {
  prove(
      "ranks 3\nblocks 3\ncollective gather\nroot 1\nrank 0\n  send 0 to 1\nrank 1\n  receive 0 from 0\n"
      "  receive 2 from 2\nrank 2\n  send 2 to 1\n");
  expect_found(
      "ranks 3\nblocks 3\ncollective gather\nroot 1\nrank 0\n  send 0 to 1\nrank 1\n  receive 2 from 0\n"
      "  receive 0 from 2\nrank 2\n  send 2 to 1\n",
      1, 1, 0,
      "rank 1, step 1 (receive 0 from 2): block 0 holds what belongs in another block in the end, and this step "
      "is the last to change it");
}

TEST(Promise, OfScatter) {
  prove(
      "ranks 3\nblocks 3\ncollective scatter\nroot 1\nrank 0\n  receive 0 from 1\nrank 1\n  send 0 to 0\n"
      "  send 2 to 2\nrank 2\n  receive 2 from 1\n");
  expect_found(
      "ranks 3\nblocks 3\ncollective scatter\nroot 1\nrank 0\n  receive 0 from 1\nrank 1\n  send 0 to 0\n"
      "  send 2 to 2\nrank 2\n  receive 1 from 1\n",
      2, kNone, 2, "rank 2: block 2 holds nothing in the end, and no step changes it");
}

TEST(Promise, OfAllToAll) {
  prove(
      "ranks 3\nblocks 6\ncollective all_to_all\n"
      "rank 0\n  send 2..3 to 1\n  send 4..5 to 2\n  receive 2..3 from 1\n  receive 4..5 from 2\n"
      "rank 1\n  send 4..5 to 2\n  send 0..1 to 0\n  receive 4..5 from 2\n  receive 0..1 from 0\n"
      "rank 2\n  send 0..1 to 0\n  send 2..3 to 1\n  receive 0..1 from 0\n  receive 2..3 from 1\n");
  // Rank 0 takes the messages of ranks 1 and 2 for each other's.
  expect_found(
      "ranks 3\nblocks 3\ncollective all_to_all\n"
      "rank 0\n  send 1 to 1\n  send 2 to 2\n  receive 2 from 1\n  receive 1 from 2\n"
      "rank 1\n  send 2 to 2\n  send 0 to 0\n  receive 2 from 2\n  receive 0 from 0\n"
      "rank 2\n  send 0 to 0\n  send 1 to 1\n  receive 0 from 0\n  receive 1 from 1\n",
      0, 3, 1,
      "rank 0, step 3 (receive 1 from 2): block 1 does not hold rank 1's block 0 in the end, and this step is the last "
      "to change it");
  // Nothing moves.
  expect_found("ranks 2\nblocks 2\ncollective all_to_all\nrank 0\nrank 1\n", 0, kNone, 1,
               "rank 0: block 1 holds what belongs in another block in the end, and no step changes it");
}

TEST(Promise, OfBarrier) {
  // Hearing of a rank twice is fine.
  prove(
      "ranks 3\nblocks 1\ncollective barrier\n"
      "rank 0\n  send 0 to 1\n  add 0 from 2\n  send 0 to 2\n  add 0 from 1\n"
      "rank 1\n  send 0 to 2\n  add 0 from 0\n  send 0 to 0\n  add 0 from 2\n"
      "rank 2\n  send 0 to 0\n  add 0 from 1\n  send 0 to 1\n  add 0 from 0\n");
  expect_found(
      "ranks 3\nblocks 1\ncollective barrier\n"
      "rank 0\n  send 0 to 1\n  add 0 from 2\nrank 1\n  send 0 to 2\n  add 0 from 0\n"
      "rank 2\n  send 0 to 0\n  add 0 from 1\n",
      0, 1, 0,
      "rank 0, step 1 (add 0 from 2): block 0 lacks rank 1's contribution in the end, and this step is the last "
      "to change it");
}

}  // namespace
}  // namespace trireme
