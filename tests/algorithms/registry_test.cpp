// The registry: what there is, how it is found, and which settings it refuses.
#include "support/throws.h"
#include "trireme/algorithms.h"
#include "trireme/verify.h"

#include <gtest/gtest.h>

#include <climits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {
namespace {

using test::usage_error;

TEST(Registry, HasEveryAllreduce) {
  std::vector<std::string_view> names;
  for (const Algorithm& row : algorithms(Collective::allreduce)) names.push_back(row.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"parameter_server", "fully_connected", "chain", "tree",
                                                  "recursive_doubling", "halving_doubling", "butterfly", "ring",
                                                  "segmented_ring", "double_binary_tree", "hierarchical_ring", "torus",
                                                  "byteps", "blink", "swing"}));
}

TEST(Registry, HasRowsOfEveryCollectiveInOrder) {
  std::size_t rows = 0;
  const Algorithm* next = algorithms().data();
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    SCOPED_TRACE(to_string(collective));
    const std::span<const Algorithm> own = algorithms(collective);
    EXPECT_GE(own.size(), 2U);
    EXPECT_EQ(own.data(), next);
    std::set<std::string_view> names;
    for (const Algorithm& row : own) {
      EXPECT_EQ(row.collective, collective);
      EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
    }
    rows += own.size();
    next = own.data() + own.size();
  }
  EXPECT_EQ(rows, algorithms().size());
}

TEST(Registry, DescribesEveryRow) {
  for (const Algorithm& row : algorithms()) {
    SCOPED_TRACE(full_name(row));
    for (const std::string_view text :
         {row.name, row.description, row.reference, row.takes, row.rounds.text, row.sent.text}) {
      EXPECT_FALSE(text.empty());
    }
    EXPECT_TRUE(row.accepts(1));
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string_view::npos);
  }
}

TEST(Registry, FindsEveryRow) {
  for (const Algorithm& row : algorithms()) {
    EXPECT_EQ(&find_algorithm(full_name(row)), &row);
    EXPECT_EQ(&find_algorithm(std::string(to_string(row.collective)) + "/" + std::string(row.name)), &row);
  }
  EXPECT_EQ(full_name(find_algorithm("ring")), "ring");
  EXPECT_EQ(full_name(find_algorithm("allgather/ring")), "allgather/ring");
  EXPECT_EQ(full_name(find_algorithm("bruck")), "reduce_scatter/bruck");  // no allreduce is called so
}

TEST(Registry, SuggestsTheNearestName) {
  EXPECT_EQ(usage_error([] { find_algorithm("rign"); }), "no algorithm is called 'rign'; did you mean 'ring'?");
  EXPECT_EQ(usage_error([] { find_algorithm("halving"); }),
            "no algorithm is called 'halving'; did you mean 'halving_doubling'?");
  EXPECT_EQ(usage_error([] { find_algorithm("broadcast/tere"); }),
            "no algorithm is called 'broadcast/tere'; did you mean 'broadcast/tree'?");
  EXPECT_EQ(usage_error([] { find_algorithm("?"); }), "no algorithm is called '?'; 'trireme algorithms' lists them");
  EXPECT_EQ(usage_error([] { find_algorithm(""); }), "no algorithm is called ''; 'trireme algorithms' lists them");
}

std::string complaint(std::string_view name, const Setting& setting) {
  std::string checked = usage_error([&] { check(find_algorithm(name), setting); });
  const std::string made = usage_error([&] { make_schedule(find_algorithm(name), setting); });
  EXPECT_EQ(checked, made);
  return checked;
}

TEST(Registry, RefusesBadSettings) {
  EXPECT_EQ(complaint("ring", {.ranks = 0}), "0 ranks can't run anything: give at least 1");
  EXPECT_EQ(complaint("ring", {.ranks = -1}), "-1 ranks can't run anything: give at least 1");
  EXPECT_EQ(complaint("ring", {.ranks = 1 << 21}), "2097152 ranks are beyond reason: at most 1048576");
  EXPECT_EQ(complaint("swing", {.ranks = 6}), "swing can't run on 6 ranks: it takes powers of two only");
  EXPECT_EQ(complaint("broadcast/tree", {.ranks = 4, .root = 4}), "there is no rank 4 among 4 to be root");
  EXPECT_EQ(complaint("broadcast/tree", {.ranks = 4, .root = -1}), "there is no rank -1 among 4 to be root");
  EXPECT_EQ(complaint("ring", {.ranks = 4, .root = 1}), "ring has no root");
  EXPECT_EQ(complaint("allgather/ring", {.ranks = 4, .root = 1}), "allgather/ring has no root");
  EXPECT_EQ(complaint("chain", {.ranks = 4, .segments = 0}), "0 segments are not between 1 and 4096");
  EXPECT_EQ(complaint("chain", {.ranks = 4, .segments = 4097}), "4097 segments are not between 1 and 4096");
  EXPECT_EQ(complaint("segmented_ring", {.ranks = 1 << 20, .segments = 4096}),
            "4096 segments on each of 1048576 ranks are too many blocks: at most 2147483647");
  EXPECT_EQ(complaint("torus", {.ranks = 6, .rows = 4}), "4 rows do not divide 6 ranks");
  EXPECT_EQ(complaint("torus", {.ranks = 6, .rows = -2}), "-2 rows do not divide 6 ranks");
  EXPECT_EQ(complaint("hierarchical_ring", {.ranks = 6, .ranks_per_host = -1}), "a host can't have -1 ranks");
  EXPECT_EQ(complaint("byteps", {.ranks = 3, .servers = 4}), "byteps takes 0 to 3 servers for 3 ranks, not 4");
  EXPECT_EQ(complaint("byteps", {.ranks = 3, .servers = -1}), "byteps takes 0 to 3 servers for 3 ranks, not -1");
}

TEST(Registry, RefusesTreesThatDoNotSpan) {
  const auto complaint_about = [](int blocks, std::vector<PackedTree> trees) {
    const auto packing = std::make_shared<TreePacking>(TreePacking{.blocks = blocks, .trees = std::move(trees)});
    return complaint("blink", {.ranks = 3, .trees = packing});
  };
  const PackedTree good{.root = 1, .parent = {1, -1, 0}, .blocks = 2};
  EXPECT_EQ(complaint_about(2, {good}), "nothing was thrown");
  EXPECT_EQ(complaint_about(4, {good, good}), "nothing was thrown");
  const std::string message = "the packed trees do not each span 3 ranks, or share out other than ";
  EXPECT_EQ(complaint_about(0, {}), message + "0 blocks");
  EXPECT_EQ(complaint_about(3, {good}), message + "3 blocks");
  EXPECT_EQ(complaint_about(2, {good, {.root = 1, .parent = {1, -1, 0}, .blocks = 0}}), message + "2 blocks");
  for (const std::vector<int>& parent : std::vector<std::vector<int>>{{},              // no ranks at all
                                                                      {1, -1},         // too few
                                                                      {1, -1, 0, 0},   // too many
                                                                      {2, -1, 0},      // a circle without the root
                                                                      {1, 2, -1},      // another root than it says
                                                                      {1, -1, -1},     // two roots
                                                                      {1, -1, 3},      // a parent that is not there
                                                                      {1, -1, -2}}) {  // nor is that
    EXPECT_EQ(complaint_about(4, {good, {.root = 1, .parent = parent, .blocks = 2}}), message + "4 blocks");
  }
  EXPECT_EQ(complaint_about(2, {{.root = -1, .parent = {1, -1, 0}, .blocks = 2}}), message + "2 blocks");
}

TEST(Registry, LeavesSettingsThatDoNotConcernARowAlone) {
  EXPECT_EQ(make_schedule(find_algorithm("ring"), {.ranks = 4, .segments = 3, .ranks_per_host = 2, .servers = 9}),
            make_schedule(find_algorithm("ring"), {.ranks = 4}));
}

TEST(Registry, StandsHostsLargerThanAllRanks) {
  const Algorithm& row = find_algorithm("hierarchical_ring");
  const Setting setting{.ranks = 5, .ranks_per_host = INT_MAX};
  const Proof proof = verify(make_schedule(row, setting));
  EXPECT_TRUE(proof.proven());
  EXPECT_EQ(broken_claim(row, setting, proof), "");
}

TEST(Registry, CountsServersAmongTheRanks) {
  EXPECT_EQ(total_ranks(find_algorithm("byteps"), {.ranks = 4, .servers = 3}), 7);
  EXPECT_EQ(total_ranks(find_algorithm("ring"), {.ranks = 4, .servers = 3}), 4);
  const Schedule schedule = make_schedule(find_algorithm("byteps"), {.ranks = 4, .servers = 3});
  EXPECT_EQ(schedule.ranks(), 7);
  EXPECT_EQ(schedule.servers, 3);
  EXPECT_EQ(schedule.workers(), 4);
}

TEST(Registry, SaysWhichClaimIsBroken) {
  const Algorithm& ring = find_algorithm("ring");
  const Setting setting{.ranks = 4};
  Proof proof = verify(make_schedule(ring, setting));
  EXPECT_EQ(broken_claim(ring, setting, proof), "");
  proof.rounds = 7;
  EXPECT_EQ(broken_claim(ring, setting, proof), "ring claims 2(P-1) = 6 rounds on 4 ranks, but takes 7");
  proof.rounds = 6;
  proof.sent = 2;
  EXPECT_EQ(broken_claim(ring, setting, proof), "ring claims to send 2(P-1)/P = 1.5 buffers on 4 ranks, but sends 2");
}

}  // namespace
}  // namespace trireme
