// One rank alone, where nothing started the program and it asks for that.
#include "communicator/collectives.h"
#include "support/environment.h"
#include "support/throws.h"

#include <gtest/gtest.h>

namespace trireme::test {
namespace {

TEST(Alone, EveryCollectiveWorks) {
  Communicator world = init({.alone = true});
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.ranks(), 1);
  for (int collective = 0; collective < kCollectives; ++collective) {
    const Case c{.collective = static_cast<Collective>(collective), .elements = 1000};
    EXPECT_EQ(perform(world, c), "") << c.describe(1);
  }
}

TEST(Alone, OnlyIfItIsAskedFor) {
  const std::string said = usage_error([] { (void)init(); });
  EXPECT_NE(said.find("this process was not started as a rank"), std::string::npos) << said;
}

TEST(Alone, TransportsThatThereAreNotAreRefused) {
  const std::string says = "no transport is called 'bogus'";
  const std::string said = usage_error([] { (void)init({.alone = true, .transport = "bogus"}); });
  EXPECT_NE(said.find(says), std::string::npos) << said;
  const Environment asked("TRIREME_TRANSPORT", "bogus");
  const std::string overruled = usage_error([] { (void)init({.alone = true, .transport = "shm"}); });
  EXPECT_NE(overruled.find(says), std::string::npos) << overruled;
}

}  // namespace
}  // namespace trireme::test
