// `trireme tune` as a user meets it: what it says of selection. Nothing is said about how fast.
#include "cli/median.h"
#include "support/environment.h"
#include "support/run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>

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

// What selection takes by size, as a report of bench or tune has it.
std::map<std::uint64_t, std::string> chosen_in(const Json& rows) {
  std::map<std::uint64_t, std::string> chosen;
  for (const Json& row : rows) {
    if (row["chosen"] == true) chosen[row["bytes"]] = row["algorithm"];
  }
  return chosen;
}

TEST_F(Tune, OnOneHostNamesWhatItsRulesTake) {
  const Ran ran = tune({"--bytes", "4KiB,64KiB"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const std::string words :
       {"4 KiB: selection takes fully_connected,", "64 KiB: selection takes butterfly,",
        "for ranks on several hosts; for ranks that share one, as these do, it has fixed rules"}) {
    EXPECT_NE(ran.out.find(words), std::string::npos) << words << " is not in " << ran.out;
  }
}

TEST_F(Tune, BetweenHostsNamesWhatSelectionThenTakes) {
  const Environment tcp("TRIREME_TRANSPORT", "tcp");
  const Ran elsewhere = tune({"--no-check"});
  EXPECT_NE(elsewhere.out.find("tuning.json. Selection uses it where TRIREME_TUNING names it.\n"), std::string::npos)
      << elsewhere.out;
  const Environment file("TRIREME_TUNING", folder_ / "tuning.json");
  EXPECT_NE(tune({"--no-check"}).out.find("tuning.json. From now on selection uses it.\n"), std::string::npos);

  const std::string sizes = "256..4MiB";
  const Ran tuned = tune({"--bytes", sizes, "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const auto said = chosen_in(Json::parse(tuned.out)["allreduce"]);
  const Ran bench = run({TRIREME_PROGRAM, "bench", "allreduce", "-n", "2", "--transport", "tcp", "--bytes", sizes,
                         "--repeats", "1", "--rounds", "1", "--json"});
  ASSERT_EQ(bench.status, 0) << bench.err;
  EXPECT_EQ(said, chosen_in(Json::parse(bench.out)["results"]));
  EXPECT_EQ(said.size(), 8U);
}

TEST_F(Tune, OfOneHostIsNotTakenForThatOfMany) {
  const Environment home("XDG_CONFIG_HOME", folder_ / "config");
  const Ran ran = run({TRIREME_PROGRAM, "run", "-n", "2", "--no-prefix", TRIREME_PROGRAM, "tune", "--no-check"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("Not written"), std::string::npos) << ran.out;
  EXPECT_TRUE(folder_.empty());
}

TEST_F(Tune, WritesTheFileThatIsNamedAndWantedElsewhere) {
  const Environment file("TRIREME_TUNING", folder_ / "new/tuning.json");
  const Ran none = run({TRIREME_PROGRAM, "run", "-n", "2", TRIREME_HELLO});
  EXPECT_NE(none.status, 0);
  EXPECT_NE(none.err.find("TRIREME_TUNING names"), std::string::npos) << none.err;
  EXPECT_NE(none.err.find("No such file"), std::string::npos) << none.err;
  const Ran tuned = run({TRIREME_PROGRAM, "run", "-n", "2", "--no-prefix", TRIREME_PROGRAM, "tune", "--no-check"});
  EXPECT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_NE(tuned.out.find("tuning.json. From now on selection uses it"), std::string::npos) << tuned.out;
  EXPECT_EQ(run({TRIREME_PROGRAM, "run", "-n", "2", TRIREME_HELLO}).status, 0);
}

}  // namespace
}  // namespace trireme
