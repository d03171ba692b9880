// The report of examples/makemore.
#include "examples/makemore/record.h"

#include <gtest/gtest.h>

#include <limits>

namespace trireme::test {
namespace {

makemore::Record some_record() {
  const makemore::Span span{0, 1'000'000};
  const makemore::StepSpans step{
      .step = 3, .batch = span, .forward = span, .backward = span, .waiting = span, .optimiser = span};
  return {.ranks = 1,
          .steps = 3,
          .batch = 4,
          .hidden = 5,
          .rate = 0.1,
          .text = "words",
          .dtype = "float64",
          .losses = {3, 2, 1},
          .one_process = {3, 2.5, 1.25},
          .difference = 0,
          .tolerance = 1e-10,
          .identical = true,
          .timelines = {{step}}};
}

TEST(Report, SaysHowFarLossesAreApart) {
  const std::string page = makemore::draw_report(some_record());
  EXPECT_NE(page.find("at most <span class=\"whole\">0.5</span> apart"), std::string::npos);
  EXPECT_NE(page.find("number good\"><b>0</b>"), std::string::npos);
}

// What went by while the rank waited for something else was not hidden.
TEST(Report, CountsAsHiddenWhatWentByWhileTheRankComputed) {
  makemore::StepSpans step{
      .step = 1,
      .batch = {0, 100},
      .forward = {100, 1000},
      .backward = {1000, 2000},
      .waiting = {2000, 2500},
      .optimiser = {2500, 3000},
      .buckets = {{.bytes = 8, .reduction = {1000, 1800}}, {.bytes = 8, .reduction = {1500, 2500}}},
      .exchanges = {{300, 400}, {1100, 1300}}};
  EXPECT_DOUBLE_EQ(step.communicated(), 800e-9);
  const auto parts = step.parts_of({1050, 2500});
  ASSERT_EQ(parts.size(), 4);
  const std::int64_t ends[] = {1100, 1300, 2000, 2500};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].span.begin, i == 0 ? 1050 : ends[i - 1]);
    EXPECT_EQ(parts[i].span.end, ends[i]);
    EXPECT_EQ(parts[i].hidden, i % 2 == 0);
  }
  makemore::Record record = some_record();
  record.timelines = {{step}};
  const std::string page = makemore::draw_report(record);
  EXPECT_NE(page.find("53 % was hidden behind backward"), std::string::npos) << "800 ns of 1500";
  EXPECT_NE(page.find("batch norm's statistics"), std::string::npos);
  const std::size_t bar = page.rfind("batch norm's statistics"), label = page.find(">backward</text>");
  EXPECT_LT(bar, label) << "the word would be hidden";
}

TEST(Report, DoesNotPassOverWhatIsNotANumber) {
  for (const std::size_t where : {0, 1, 2}) {
    makemore::Record record = some_record();
    record.one_process[where] = std::numeric_limits<double>::quiet_NaN();
    record.difference = std::numeric_limits<double>::quiet_NaN();
    const std::string page = makemore::draw_report(record);
    EXPECT_NE(page.find("at most <span class=\"whole\">nan</span> apart"), std::string::npos) << where;
    EXPECT_NE(page.find("number bad\"><b>nan</b>"), std::string::npos) << where;
  }
}

}  // namespace
}  // namespace trireme::test
