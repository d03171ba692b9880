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
