// The report of a run by itself: whom it marks as what a failure comes from, and what it says of ranks.
#include "cli/report.h"

#include "support/launched.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <vector>

namespace trireme::cli {
namespace {

std::vector<RankReport> all_of(int ranks) {
  std::vector<RankReport> all(ranks);
  for (int rank = 0; rank < ranks; ++rank) all[rank].rank = rank;
  return all;
}

std::vector<int> causes_of(std::vector<RankReport> ranks) {
  mark_causes(ranks);
  std::vector<int> causes;
  for (const RankReport& rank : ranks) {
    if (rank.cause) causes.push_back(rank.rank);
  }
  return causes;
}

TEST(Causes, AreThoseThatMostRanksBlame) {
  std::vector<RankReport> ranks = all_of(4);
  ranks[0].failed = true;
  EXPECT_EQ(causes_of(ranks), std::vector{0});
  // One that is cut off from all others blames one of them.
  ranks[0].blames = {3};
  ranks[1].blames = {3};
  ranks[3].blames = {0};
  EXPECT_EQ(causes_of(ranks), std::vector{3});
  ranks[1].blames = {};
  EXPECT_EQ(causes_of(ranks), (std::vector{0, 3})) << "nobody can tell which";
  ranks[2].blames = {1, 3};
  EXPECT_EQ(causes_of(ranks), std::vector{3});
}

TEST(Causes, AreNobodyWhereAllEndAlikeBeforeTheyMeet) {
  std::vector<RankReport> ranks = all_of(3);
  for (RankReport& rank : ranks) rank.fate = "exited with status 2";
  ranks[1].failed = true;
  EXPECT_EQ(causes_of(ranks), std::vector<int>());
  ranks[2].fate = "was ended by trireme run";
  EXPECT_EQ(causes_of(ranks), std::vector{1});
}

TEST(Causes, AreNobodyWhereTheTimeIsOverAndARankIsALittleLate) {
  std::vector<RankReport> ranks = all_of(3);
  for (RankReport& rank : ranks) {
    const std::uint32_t operation = rank.rank == 1 ? 6 : 7;
    rank.recent = {{.number = operation, .context = 1, .sequence = operation, .call = {}, .ended = {}}};
    rank.seen = std::chrono::milliseconds(2);
  }
  EXPECT_EQ(causes_of(ranks), std::vector<int>());
  for (RankReport& rank : ranks) rank.seen = std::chrono::seconds(2);
  EXPECT_EQ(causes_of(ranks), std::vector{1});
}

// It is the first to give up, and the others are ended before they find out.
TEST(Causes, AreThoseThatAreCutOffFromMost) {
  const std::vector<Record> under_way{{.number = 7, .context = 1, .sequence = 7, .call = {}, .ended = {}}};
  std::vector<RankReport> ranks = all_of(3);
  for (RankReport& rank : ranks) rank.recent = under_way;
  ranks[2].failed = true;
  ranks[2].blames = {0};
  EXPECT_EQ(causes_of(ranks), std::vector{2});
  ranks[1].blames = {0};
  EXPECT_EQ(causes_of(ranks), std::vector{0}) << "it was heard";
  ranks[1].blames = {};
  for (const int other : {0, 1}) ranks[other].recent[0].ended = std::chrono::nanoseconds(1);
  EXPECT_EQ(causes_of(ranks), std::vector{0}) << "who is in no operation hears nothing";
}

// They may be ended before they have said whom they blame.
TEST(Causes, AreWhoFailedFirstThoughFewHaveSaidSo) {
  const std::vector<Record> under_way{{.number = 7, .context = 1, .sequence = 7, .call = {}, .ended = {}}};
  std::vector<RankReport> ranks = all_of(5);
  for (RankReport& rank : ranks) rank.recent = under_way;
  ranks[3].failed = true;
  ranks[0].blames = {3};
  EXPECT_EQ(causes_of(ranks), std::vector{3});
}

TEST(Causes, AreFirstThoseOfWhichMoreIsKnown) {
  std::vector<RankReport> ranks = all_of(3);
  ranks[0].failed = true;
  for (RankReport& rank : ranks) rank.blames = {1};
  ranks[2].killed = true;
  EXPECT_EQ(causes_of(ranks), std::vector{2});
  ranks[2].killed = false;
  ranks[2].stopped_by = 19;
  EXPECT_EQ(causes_of(ranks), std::vector{2});
}

TEST(Causes, AreWhoDidNotMeetTheOthers) {
  std::vector<RankReport> ranks = all_of(3);
  ranks[0].failed = true;
  ranks[1].kept_others_from_meeting = true;
  EXPECT_EQ(causes_of(ranks), std::vector{1});
  ranks[2].killed = true;
  EXPECT_EQ(causes_of(ranks), std::vector{2});
}

TEST(Causes, AreRanksOfTheRun) {
  std::vector<RankReport> ranks = all_of(2);
  ranks[1].failed = true;
  ranks[0].blames = {-1, 2, 1 << 30};
  EXPECT_EQ(causes_of(ranks), std::vector{1});
}

// Operations are counted in each communicator.
TEST(Report, NamesCommunicatorsThatDiffer) {
  std::vector<RankReport> ranks = all_of(2);
  for (RankReport& rank : ranks) rank.recent = {{.number = 7, .context = 1, .sequence = 7, .call = {}, .ended = {}}};
  EXPECT_FALSE(contains(format_ranks(ranks), "communicator"));
  ranks[0].recent[0].begun = std::chrono::seconds(1);
  EXPECT_TRUE(contains(format_ranks(ranks), "in operation 7, barrier, begun since\n")) << format_ranks(ranks);
  ranks[0].recent[0].begun = {};
  ranks[1].recent[0].context = 3 | kMessages;
  ranks[1].recent[0].call.kind = CallKind::send;
  EXPECT_TRUE(contains(format_ranks(ranks), "operation 7, barrier (communicator 1), for")) << format_ranks(ranks);
  EXPECT_TRUE(contains(format_ranks(ranks), " (communicator 3), for")) << format_ranks(ranks);
}

// What was heard of them last is old: they may well have been where the others were.
TEST(Report, DoesNotSayWhereLostRanksWere) {
  std::vector<RankReport> ranks = all_of(4);
  const Record waiting{.number = 7, .context = 1, .sequence = 7, .call = {}, .ended = {}};
  ranks[0].recent = {waiting};
  EXPECT_FALSE(contains(format_ranks(ranks), "ranks were in")) << "it has only just come there";
  for (RankReport& rank : ranks) rank.seen = std::chrono::seconds(1);
  EXPECT_TRUE(contains(format_ranks(ranks), "1 of 4 ranks were in operation 7, "));
  EXPECT_TRUE(contains(format_ranks(ranks), "; ranks 1 to 3 were not\n"));
  for (const int lost : {1, 2}) ranks[lost].lost = true;
  ranks[2].recent = {{.number = 5, .context = 1, .sequence = 5, .call = {}, .ended = {}}};
  EXPECT_TRUE(contains(format_ranks(ranks), "; rank 3 was not\n")) << format_ranks(ranks);
  ranks[3].recent = {waiting};
  EXPECT_FALSE(contains(format_ranks(ranks), "ranks were in")) << format_ranks(ranks);
}

TEST(Report, AsJsonHasWhatEachRankDidLast) {
  std::vector<RankReport> ranks = all_of(2);
  for (std::uint32_t i = 0; i < 3; ++i)
    ranks[1].recent.push_back({.number = i, .context = 1, .sequence = i, .call = {}, .timed = i != 1, .ended = {}});
  ranks[1].host = "b";
  const auto json = nlohmann::json::parse(report_as_json({.host = "a"}, ranks, {}));
  EXPECT_FALSE(json.contains("failed_at"));
  EXPECT_EQ(json["ranks"][0]["host"], "a");
  EXPECT_EQ(json["ranks"][1]["host"], "b");
  EXPECT_TRUE(json["ranks"][0]["recent"].empty());
  ASSERT_EQ(json["ranks"][1]["recent"].size(), 3U);
  EXPECT_EQ(json["ranks"][1]["recent"][0]["operation"], 0);
  EXPECT_EQ(json["ranks"][1]["last"]["operation"], 2);
  EXPECT_EQ(json["ranks"][1]["recent"][1]["timed"], false);
  EXPECT_FALSE(json["ranks"][1]["last"].contains("timed"));
}

// Of one that was not timed it is only known when it was not over yet.
TEST(Report, SaysNoMoreThanWasTimed) {
  std::vector<RankReport> ranks = all_of(2);
  for (RankReport& rank : ranks) {
    rank.pid = 100 + rank.rank;
    rank.seen = std::chrono::seconds(3);
    rank.recent.push_back({.call = {}, .timed = rank.rank == 0, .ended = std::chrono::seconds(1)});
  }
  const std::string text = format_ranks(ranks);
  EXPECT_NE(text.find(", ended 2 s before\n"), std::string::npos) << text;
  EXPECT_NE(text.find(", ended less than 2 s before\n"), std::string::npos) << text;
}

TEST(Report, OfManyRanksIsNotTooLong) {
  std::vector<RankReport> ranks = all_of(10'000);
  for (RankReport& rank : ranks) rank.recent.resize(16);
  const std::string text = report_as_json({}, ranks, {});
  EXPECT_LT(text.size(), std::size_t{16} << 20);
  EXPECT_EQ(nlohmann::json::parse(text)["ranks"][9'999]["recent"].size(), 1U);
}

}  // namespace
}  // namespace trireme::cli
