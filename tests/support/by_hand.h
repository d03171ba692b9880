// Schedules made by hand, and what the verifier should make of them.
#pragma once

#include "support/brute_force.h"
#include "trireme/program.h"
#include "trireme/verify.h"

#include <gtest/gtest.h>

#include <string_view>

namespace trireme::test {

inline Schedule read(std::string_view text) { return parse_schedule(text, "test"); }

/// Verifies, expects a proof, and runs the schedule on numbers, too.
inline Proof prove(std::string_view text) {
  const Schedule schedule = read(text);
  Proof proof = verify(schedule);
  EXPECT_TRUE(proof.proven()) << text << proof.finding->message;
  EXPECT_EQ(test::brute_force(schedule, 2, 1), "") << text;
  return proof;
}

/// A rank, step or block that does not apply.
inline constexpr int kNone = -1;

/// Verifies, and expects this to be found.
inline void expect_found(std::string_view text, int rank, int step, int block, std::string_view message) {
  SCOPED_TRACE(text);
  const Proof proof = verify(read(text));
  ASSERT_FALSE(proof.proven());
  EXPECT_EQ(proof.finding->message, message);
  EXPECT_EQ(proof.finding->rank, rank);
  EXPECT_EQ(proof.finding->step, step);
  EXPECT_EQ(proof.finding->block, block);
}

}  // namespace trireme::test
