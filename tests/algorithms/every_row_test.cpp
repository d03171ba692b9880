// Every row of the registry, for many rank counts and settings: it keeps its promise and its claims.
#include "support/brute_force.h"
#include "support/rows.h"
#include "trireme/algorithms.h"
#include "trireme/verify.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

class Row : public test::EveryRow {};

TEST_P(Row, KeepsItsPromiseAndItsClaims) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64}) {
    for (const Setting& setting : test::settings_of(row(), ranks)) {
      SCOPED_TRACE(test::describe(setting));
      const Schedule schedule = make_schedule(row(), setting);
      const Proof proof = verify(schedule);
      ASSERT_TRUE(proof.proven()) << proof.finding->message;
      EXPECT_EQ(broken_claim(row(), setting, proof), "");
      EXPECT_EQ(proof.same_bits, row().same_bits || ranks <= 2);
    }
  }
}

// What is proven on symbols is true of numbers too, in whichever order the steps happen.
TEST_P(Row, ComputesOnNumbers) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16}) {
    for (const Setting& setting : test::settings_of(row(), ranks)) {
      SCOPED_TRACE(test::describe(setting));
      ASSERT_EQ(test::brute_force(make_schedule(row(), setting), 1, 6), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Row, ::testing::ValuesIn(test::every_row()), test::test_name);

TEST(Rows, ComeBackFromTheirText) {
  for (const Algorithm& row : algorithms()) {
    for (const int ranks : {1, 4, 5, 8, 9}) {
      for (const Setting& setting : test::settings_of(row, ranks)) {
        SCOPED_TRACE(full_name(row) + ", " + test::describe(setting));
        const Schedule schedule = make_schedule(row, setting);
        ASSERT_EQ(parse_schedule(to_text(schedule), "test"), schedule);
      }
    }
  }
}

}  // namespace
}  // namespace trireme
