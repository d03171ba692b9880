// `trireme tune` as a user meets it: what it says of selection. Nothing is said about how fast.
#include "cli/median.h"
#include "support/run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

using Json = nlohmann::json;

// On two ranks of this machine, with a file of its own for what it finds.
class Tune : public testing::Test {
 protected:
  Ran tune(std::vector<std::string> options) const {
    options.insert(options.begin(), {TRIREME_PROGRAM, "run", "-n", "2", "--no-prefix", TRIREME_PROGRAM, "tune",
                                     "--output", folder_ / "tuning.json"});
    return run(std::move(options));
  }

  TemporaryFolder folder_;
};

TEST(Median, IsInTheMiddle) {
  EXPECT_EQ(cli::median({7}), 7);
  EXPECT_EQ(cli::median({9, 1, 2}), 2);
  EXPECT_EQ(cli::median({100, 1, 2, 4}), 3);
}

TEST_F(Tune, TakesSizesAsBenchDoes) {
  const Ran ran = tune({"--bytes", "4KiB..8KiB,4KiB,64", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  std::vector<std::uint64_t> sizes;
  const Json report = Json::parse(ran.out);
  for (const Json& row : report["allreduce"]) {
    if (sizes.empty() || sizes.back() != row["bytes"]) sizes.push_back(row["bytes"]);
  }
  EXPECT_EQ(sizes, (std::vector<std::uint64_t>{64, 4096, 8192}));
  for (const std::string wrong : {"6", "0", "4,,8", "4KiB..1KiB"}) {
    EXPECT_EQ(run({TRIREME_PROGRAM, "tune", "--bytes", wrong}).status, 2) << wrong;
  }
}

}  // namespace
}  // namespace trireme
