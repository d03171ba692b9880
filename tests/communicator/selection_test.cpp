// What selection knows of hosts, and takes there.
#include "communicator/selection.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace trireme {
namespace {

Tuning slow_network() {
  Tuning tuning;
  tuning.between = {.alpha = Seconds(1e-4), .bandwidth = 6e7};
  tuning.inside = {.alpha = Seconds(1e-6), .bandwidth = 1e10};
  return tuning;
}

int ranks_per_host(const std::vector<int>& hosts) {
  const Topology topology = Selector(hosts, slow_network(), "").topology();
  return topology.kind == "two_level" ? topology.ranks_per_host : 0;
}

TEST(Selection, KnowsHostsWithAsManyRanks) {
  EXPECT_EQ(ranks_per_host({0, 0, 2, 2}), 2);
  EXPECT_EQ(ranks_per_host({0, 0, 0, 3, 3, 3, 6, 6, 6}), 3);
}

TEST(Selection, KnowsThatTheLastHostMayHaveFewer) {
  EXPECT_EQ(ranks_per_host({0, 0, 2}), 2);
  EXPECT_EQ(ranks_per_host({0, 0, 0, 3, 3, 3, 6}), 3);
  EXPECT_EQ(ranks_per_host({0, 0, 0, 3, 3}), 3);
}

TEST(Selection, TakesOtherHostsForOneNetwork) {
  EXPECT_EQ(ranks_per_host({0, 1, 1}), 0);           // more on the last
  EXPECT_EQ(ranks_per_host({0, 0, 2, 3, 3}), 0);     // fewer in the middle
  EXPECT_EQ(ranks_per_host({0, 1, 0, 1}), 0);        // dealt out in turn
  EXPECT_EQ(ranks_per_host({0, 0, 2, 2, 0, 0}), 0);  // of the first, some at the end
  EXPECT_EQ(ranks_per_host({0, 1, 2}), 0);
  EXPECT_EQ(ranks_per_host({0, 0, 0}), 0);
}

TEST(Selection, SendsFewMessagesWhereRanksShareCores) {
  const auto takes = [](int ranks, std::size_t bytes) {
    std::vector<int> hosts(ranks);
    std::iota(hosts.begin(), hosts.end(), 0);
    return Selector(hosts, Tuning{}, "", Cores::shared).pick(Collective::allreduce, bytes, "").algorithm->name;
  };
  EXPECT_EQ(takes(4, 1024), "tree");
  EXPECT_EQ(takes(4, 128 << 10), "tree");
  EXPECT_EQ(takes(8, 16 << 10), "parameter_server");
  EXPECT_EQ(takes(8, 32 << 10), "tree");
  EXPECT_NE(takes(8, 16 << 20), "tree");
}

// What leaves a host is what takes time: of 7 ranks on two hosts, a ring of all of them sends 12/7 of the buffer through
// each link, one of two leaders only the buffer itself.
TEST(Selection, LeavesHostsWithFewBytes) {
  Selector selector(std::vector<int>{0, 0, 0, 0, 4, 4, 4}, slow_network(), "");
  EXPECT_EQ(selector.pick(Collective::allreduce, 16 << 20, "").algorithm->name, "hierarchical_ring");
}

}  // namespace
}  // namespace trireme
