// The naive scheme computes what DistributedDataParallel does, so that what it takes can be compared.
#include "support/run.h"

#include <gtest/gtest.h>

#include <string>

namespace trireme::test {
namespace {

TEST(Naive, TrainsWhatDistributedDataParallelTrains) {
  for (const int ranks : {1, 3}) {
    const Ran ran = run({TRIREME_PROGRAM, "run", "-n", std::to_string(ranks), TRIREME_NAIVE, "--width", "16", "--depth",
                         "2", "--batch", "12", "--steps", "10"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    for (const char* name : {"naive: ", "DistributedDataParallel: "}) {
      EXPECT_NE(ran.out.find(name + std::to_string(ranks) + " ranks, "), std::string::npos) << ran.out;
    }
    const std::string words = "largest difference of the two models: ";
    const std::size_t at = ran.out.find(words);
    ASSERT_NE(at, std::string::npos) << ran.out;
    EXPECT_LE(std::stod(ran.out.substr(at + words.size())), 1e-6);
  }
}

TEST(Naive, SaysWhatIsWrong) {
  const Ran ran = run({TRIREME_PROGRAM, "run", "-n", "2", TRIREME_NAIVE, "--batch", "3"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("a batch of 3 can't be shared evenly by 2 ranks"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace trireme::test
