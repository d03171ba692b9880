// How far another host's clock is ahead, from its answers.
#include "cli/clock_offset.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;

TEST(ClockOffset, IsThatOfTheQuickestAnswer) {
  ClockOffset offset;
  EXPECT_EQ(offset.get(), 0ns);
  offset.take(1000ms, 6010ms, 1020ms);
  EXPECT_EQ(offset.get(), 5000ms);
  offset.take(2000ms, 7009ms, 2010ms);
  EXPECT_EQ(offset.get(), 5004ms);
  offset.take(3000ms, 8090ms, 3100ms);
  EXPECT_EQ(offset.get(), 5004ms);
}

// The clock there is a thousandth too fast, and the quickest answer of all came first.
TEST(ClockOffset, FollowsAClockThatDrifts) {
  ClockOffset offset;
  offset.take(0ms, 0ms, 0ms);
  for (auto now = 1000ms; now <= 600'000ms; now += 1000ms) {
    offset.take(now - 2ms, now - 1ms + now / 1000, now);
    const auto error = now / 1000 - offset.get();
    EXPECT_LE(error, 61ms) << now.count();
    EXPECT_GE(error, -1ms) << now.count();
  }
  // Long unheard of, it is told by what comes then, however slow.
  offset.take(900'000ms, 902'500ms, 905'000ms);
  EXPECT_EQ(offset.get(), 0ms);
}

}  // namespace
}  // namespace trireme::cli
