// Every collective by every algorithm over every way, against a plain reference.
#include "communicator/cluster.h"
#include "communicator/collectives.h"
#include "support/random.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

namespace trireme::test {
namespace {

const std::vector<std::vector<Buffering>> kBufferings = {
    {{.window = false, .in_place = false}},
    {{.window = true, .in_place = true}},
    {{.window = false, .in_place = true}},
    {{.window = true, .in_place = false}},
    {{true, true}, {false, false}, {true, false}, {false, true}, {false, true}},
};

std::vector<int> roots_of(Collective collective, int ranks) {
  if (!is_rooted(collective) || ranks == 1) return {0};
  if (ranks == 2) return {0, 1};
  return {0, ranks / 2, ranks - 1};
}

/// All cases with one of the lengths; `every`: each way of giving buffers, not one of them. What else there is to choose
/// is chosen at random, the same in each run, so that nothing always goes together.
std::vector<Case> cases_of(Collective collective, int ranks, const std::vector<std::size_t>& lengths, bool every) {
  std::mt19937 random(static_cast<unsigned>(ranks) * kCollectives + static_cast<unsigned>(collective));
  std::vector<Case> cases;
  for (const Algorithm& row : algorithms(collective)) {
    if (row.served || !row.accepts(ranks)) continue;
    for (const int root : roots_of(collective, ranks)) {
      for (const std::size_t length : lengths) {
        for (std::size_t i = 0; i < (every ? kBufferings.size() : 1); ++i) {
          const bool average = reduces(collective) && random() % 3 == 0;
          cases.push_back({.row = &row,
                           .collective = collective,
                           .elements = length,
                           .dtype = static_cast<Dtype>(random() % kDtypes),
                           .op = average ? Op::average : Op::sum,
                           .root = root,
                           .buffering = kBufferings[every ? i : random() % kBufferings.size()],
                           .seed = static_cast<std::uint32_t>(cases.size() + 1)});
        }
      }
    }
  }
  return cases;
}

/// Every dtype with every operation that it has.
std::vector<std::pair<Dtype, Op>> kinds_of(Collective collective) {
  std::vector<std::pair<Dtype, Op>> kinds;
  for (int dtype = 0; dtype < kDtypes; ++dtype) {
    for (int op = 0; op < (reduces(collective) ? kOps : 1); ++op) {
      const std::pair kind{static_cast<Dtype>(dtype), static_cast<Op>(op)};
      if (!reduces(collective) || supports(kind.first, kind.second)) kinds.push_back(kind);
    }
  }
  return kinds;
}

void run_all(Cluster& cluster, const std::vector<Case>& cases) {
  cluster.run([&](Communicator& world) {
    for (const Case& c : cases) {
      const std::string wrong = perform(world, c);
      EXPECT_EQ(wrong, "") << "rank " << world.rank() << ": " << c.describe(world.ranks());
      if (!wrong.empty()) return;
    }
  });
}

using Combination = std::tuple<Way, Collective>;

class Matrix : public ::testing::TestWithParam<Combination> {};
class Slots : public Matrix {};
class Crowd : public Matrix {};

std::string name_of(const ::testing::TestParamInfo<Combination>& info) {
  return fmt::format("{}_{}", to_string(std::get<0>(info.param)), trireme::to_string(std::get<1>(info.param)));
}

std::vector<Combination> combinations(const std::vector<Way>& ways) {
  std::vector<Combination> all;
  for (const Way way : ways) {
    for (int collective = 0; collective < kCollectives; ++collective) {
      all.emplace_back(way, static_cast<Collective>(collective));
    }
  }
  return all;
}

TEST_P(Matrix, OddLengths) {
  const auto [way, collective] = GetParam();
  const bool few = way == Way::interleaved || way == Way::tcp || kEffort == 1;
  std::set<std::tuple<std::size_t, Dtype>> seen;  // which of the lengths with which dtype
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Cluster cluster(way, ranks);
    const auto p = static_cast<std::size_t>(ranks);
    const std::vector<std::size_t> lengths = {0, 1, p - 1, p, p + 1, 1009};
    const std::vector<Case> cases = cases_of(collective, ranks, lengths, !few);
    for (const Case& c : cases) seen.emplace(std::ranges::find(lengths, c.elements) - lengths.begin(), c.dtype);
    run_all(cluster, cases);
    if (HasFailure()) return;
  }
  EXPECT_TRUE(collective != Collective::allreduce || seen.size() == std::size_t{6} * kDtypes) << seen.size();
}

TEST_P(Matrix, EveryDtypeWithEveryOp) {
  const auto [way, collective] = GetParam();
  for (int ranks = 1; ranks <= 9; ++ranks) {
    if (kEffort == 1 && ranks != 3 && ranks != 8) continue;
    Cluster cluster(way, ranks);
    std::vector<Case> cases;
    for (const auto& [dtype, op] : kinds_of(collective)) {
      for (Case c : cases_of(collective, ranks, {103}, false)) {
        c.dtype = dtype;
        c.op = op;
        c.seed = static_cast<std::uint32_t>(cases.size() + 1);
        c.buffering = kBufferings[cases.size() % kBufferings.size()];
        cases.push_back(c);
      }
    }
    run_all(cluster, cases);
    if (HasFailure()) return;
  }
}

TEST_P(Matrix, ManySegments) {
  const auto [way, collective] = GetParam();
  const bool every = kEffort > 1 && (way == Way::shm || way == Way::two_hosts);
  for (const int ranks : {2, 3, 5, 8}) {
    if (kEffort == 1 && ranks == 8) continue;
    Cluster cluster(way, ranks);
    const bool shares = !reduces(collective) || collective == Collective::reduce_scatter;
    const std::size_t length = shares && collective != Collective::broadcast ? 150001 : 300007;
    run_all(cluster, cases_of(collective, ranks, {length}, every));
    if (HasFailure()) return;
  }
}

// Each rank's share is cut into more segments than are under way at once, so that what the first of them used is used
// again.
TEST_P(Slots, AreUsedAgain) {
  if (kEffort == 1) GTEST_SKIP() << "so much takes too long with a sanitizer";
  const auto [way, collective] = GetParam();
  constexpr int kRanks = 3;
  constexpr std::size_t kShare = 2'200'007;  // of f64: 68 segments
  const bool whole =
      collective == Collective::allreduce || collective == Collective::broadcast || collective == Collective::reduce;
  std::vector<Case> cases = cases_of(collective, kRanks, {whole ? kRanks * kShare : kShare}, false);
  std::erase_if(cases, [](const Case& c) { return is_rooted(c.collective) && c.root != 1; });
  for (Case& c : cases) c.dtype = Dtype::f64;
  Cluster cluster(way, kRanks);
  run_all(cluster, cases);
}

// Plans of so many ranks lend otherwise, and divide averages at the end.
TEST_P(Crowd, OfMoreThanSixtyFour) {
  const auto [way, collective] = GetParam();
#ifdef __SANITIZE_THREAD__
  if (way != Way::inproc) GTEST_SKIP() << "the sanitizer has too few addresses for the shared memory of so many";
#endif
  Cluster cluster(way, 67);
  std::vector<Case> cases = cases_of(collective, 67, {1, 67, 1009}, false);
  for (Case& c : cases) c.dtype = c.seed % 2 == 0 ? Dtype::f32 : Dtype::i32;  // which hold the sums of so many
  run_all(cluster, cases);
}

INSTANTIATE_TEST_SUITE_P(
    All, Matrix, ::testing::ValuesIn(combinations({Way::inproc, Way::shm, Way::tcp, Way::two_hosts, Way::interleaved})),
    name_of);
INSTANTIATE_TEST_SUITE_P(All, Slots, ::testing::ValuesIn(combinations({Way::shm, Way::tcp})), name_of);
INSTANTIATE_TEST_SUITE_P(All, Crowd, ::testing::ValuesIn(combinations({Way::inproc, Way::two_hosts})), name_of);

}  // namespace
}  // namespace trireme::test
