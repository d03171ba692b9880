// Brute force itself: it must see what is wrong, or tests that trust it would mean nothing.
#include "support/brute_force.h"

#include "trireme/program.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace trireme {
namespace {

using test::BruteForce;
using test::Sends;

TEST(BruteForce, SeesWhatIsWrong) {
  const struct {
    std::string_view text;
    std::string_view problem;
  } cases[] = {
      // Nothing is wrong.
      {"rank 0\n  send 0..1 to 1\n  add 0..1 from 1\nrank 1\n  send 0..1 to 0\n  add 0..1 from 0\n", ""},
      // A contribution is missing, counts twice, or is another block's.
      {"rank 0\n  send 0..1 to 1\nrank 1\n  add 0..1 from 0\n", "rank 0 ends with a wrong block 1"},
      {"rank 0\n  send 0..1 to 1\n  send 0 to 1\n  receive 0..1 from 1\n"
       "rank 1\n  add 0..1 from 0\n  add 0 from 0\n  send 0..1 to 0\n",
       "rank 1 ends with a wrong block 0"},
      {"rank 0\n  send 0..1 to 1\n  add 1 from 1\n  add 0 from 1\n"
       "rank 1\n  send 0 to 0\n  send 1 to 0\n  add 0..1 from 0\n",
       "rank 0 ends with a wrong block 1"},
      // Overwritten in place of added to.
      {"rank 0\n  send 0..1 to 1\n  add 0..1 from 1\nrank 1\n  send 0..1 to 0\n  receive 0..1 from 0\n",
       "rank 1 ends with a wrong block 1"},
      // What an allgather does not start with is garbage.
      {"collective allgather\nrank 0\n  send 0..1 to 1\nrank 1\n  receive 0..1 from 0\n",
       "rank 1 ends with a wrong block 1"},
      {"collective broadcast\nrank 0\n  send 0..1 to 1\nrank 1\n  add 0..1 from 0\n",
       "rank 1 ends with a wrong block 1"},
      {"collective scatter\nrank 0\n  send 1 to 1\nrank 1\n  receive 0 from 0\n", "rank 1 ends with a wrong block 1"},
      {"collective gather\nrank 0\n  receive 0 from 1\nrank 1\n  send 1 to 0\n", "rank 0 ends with a wrong block 1"},
      {"collective reduce\nrank 0\n  receive 0..1 from 1\nrank 1\n  send 0..1 to 0\n",
       "rank 0 ends with a wrong block 1"},
      {"collective reduce_scatter\nrank 0\n  send 0 to 1\n  add 1 from 1\nrank 1\n  send 1 to 0\n  add 0 from 0\n",
       "rank 1 ends with a wrong block 1"},
      {"collective all_to_all\nrank 0\nrank 1\n", "rank 1 ends with a wrong block 0"},
      {"collective barrier\nrank 0\n  send 0..1 to 1\nrank 1\n  add 0..1 from 0\n", "rank 0 ends with a wrong block 1"},
      // Messages without another end, or of another size.
      {"rank 0\n  send 0 to 1\nrank 1\n", "rank 0, step 0 never ends"},
      {"rank 0\nrank 1\n  receive 0 from 0\n", "rank 1, step 0 never ends"},
      {"rank 0\n  send 0..1 to 1\nrank 1\n  receive 0 from 0\n", "a message has another size"},
      // A deadlock.
      {"rank 0\n  add 0 from 1\n  send 0 to 1\nrank 1\n  add 0 from 0\n  send 0 to 0\n", "rank 0, step 0 never ends"},
  };
  for (const auto& [text, problem] : cases) {
    const Schedule schedule = parse_schedule("ranks 2\nblocks 2\n" + std::string(text), "test");
    for (const std::uint64_t seed : {1, 2, 3}) {
      EXPECT_EQ(BruteForce(schedule).run(Sends::waiting, seed), problem) << text;
    }
    EXPECT_EQ(test::brute_force(schedule, 1, 1).empty(), problem.empty()) << text;
  }
}

TEST(BruteForce, SeesWhatNobodyTakes) {
  const Schedule schedule =
      parse_schedule("ranks 2\nblocks 1\ncollective reduce\nrank 0\nrank 1\n  send 0 to 0\n", "test");
  EXPECT_EQ(BruteForce(schedule).run(Sends::buffered, 1), "rank 1, step 0 sends what nobody takes");
}

TEST(BruteForce, NamesTheRunThatWentWrong) {
  const Schedule schedule = parse_schedule("ranks 2\nblocks 1\nrank 0\nrank 1\n", "test");
  const std::string problem = test::brute_force(schedule, 1, 1);
  EXPECT_NE(problem.find("rank 1 ends with a wrong block 0 (waiting sends, seed "), std::string::npos) << problem;
}

}  // namespace
}  // namespace trireme
