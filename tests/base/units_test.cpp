// Sizes, rates and times as people write them.
#include "trireme/units.h"

#include "support/random.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace trireme {
namespace {

using test::usage_error;

constexpr double kKi = 1024;

TEST(Bytes, AcceptsDecimalAndBinaryUnits) {
  const struct {
    std::string_view text;
    std::uint64_t bytes;
  } cases[] = {
      {"0", 0},
      {"1", 1},
      {"1048576", 1048576},
      {"100B", 100},
      {"1K", 1000},
      {"1KB", 1000},
      {"1kB", 1000},
      {"4KB", 4000},
      {"1Ki", 1024},
      {"1KiB", 1024},
      {"1kiB", 1024},
      {"64KiB", 65536},
      {"1MB", 1000000},
      {"1MiB", 1048576},
      {"16MiB", 16777216},
      {"16 MiB", 16777216},
      {"1GB", 1000000000},
      {"1.5GiB", 1610612736},
      {"1TB", 1000000000000},
      {"1TiB", 1099511627776},
      {"0.5KiB", 512},
      {".5K", 500},
      {"1e3", 1000},
      {"1.4", 1},
      {"1.6", 2},
      {"0MiB", 0},
      {"1000TB", 1000000000000000},
  };
  for (const auto& [text, bytes] : cases) EXPECT_EQ(parse_bytes(text), bytes) << text;
}

TEST(Bytes, RejectsWhatIsNoSize) {
  for (const std::string text : {"",      " ",   " 5",  "-1",       "-1KiB", "MiB",  "five",  "5X",    "5MX",
                                 "5MiBs", "5iB", "5b",  "5Kbit",    "5MB/s", "0x10", "1,000", "1_000", "5 5",
                                 "1..5",  "inf", "nan", "infinity", "1e400", "+5",   "5MiB5", "16MiB "}) {
    const std::string message = usage_error([&] { parse_bytes(text); });
    EXPECT_NE(message.find("is not a size"), std::string::npos) << '"' << text << "\": " << message;
    EXPECT_NE(message.find("'" + text + "'"), std::string::npos) << message;
  }
}

TEST(Bytes, RejectsSizesBeyondReason) {
  for (const std::string text : {"1001TB", "1e15KB", "1000000000000001", "1e300", "1e308TiB"}) {
    const std::string message = usage_error([&] { parse_bytes(text); });
    EXPECT_NE(message.find("beyond reason: at most 1000 TB"), std::string::npos) << '"' << text << "\": " << message;
  }
}

TEST(Bytes, FormatsInTheLargestBinaryUnitThatFits) {
  const struct {
    double bytes;
    std::string_view text;
  } cases[] = {
      {0, "0 B"},
      {1, "1 B"},
      {100, "100 B"},
      {1023, "1023 B"},
      {1024, "1 KiB"},
      {1536, "1.5 KiB"},
      {1025, "1.001 KiB"},
      {0.25, "0.25 B"},
      {16 * kKi * kKi, "16 MiB"},
      {kKi * kKi * kKi, "1 GiB"},
      {kKi * kKi * kKi - 1, "1 GiB"},
      {kKi * kKi - 1, "1023.999 KiB"},
      {1023.9999, "1 KiB"},
      {2.5 * kKi * kKi * kKi * kKi, "2.5 TiB"},
      {4096 * kKi * kKi * kKi * kKi, "4096 TiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_bytes(bytes), text) << bytes;
}

TEST(Bytes, ComeBackFromTheirText) {
  test::Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t exact = std::uint64_t{1} << random.below(50);
    EXPECT_EQ(parse_bytes(format_bytes(static_cast<double>(exact))), exact);
    const auto bytes = static_cast<double>(random.between(1, 1 << 30));
    const auto again = static_cast<double>(parse_bytes(format_bytes(bytes)));
    EXPECT_NEAR(again, bytes, bytes * 0.001 + 0.5) << format_bytes(bytes);
  }
}

TEST(Rate, CountsBitsAndBytes) {
  const struct {
    std::string_view text;
    double bytes_per_second;
  } cases[] = {
      {"8bit", 1},
      {"8bit/s", 1},
      {"1B", 1},
      {"1B/s", 1},
      {"10Gbit", 1.25e9},
      {"10gbit", 1.25e9},
      {"10Gb/s", 1.25e9},
      {"10Gbit/s", 1.25e9},
      {"10Gbps", 1.25e9},
      {"10 Gbits", 1.25e9},
      {"500Mbit/s", 62.5e6},
      {"8GB", 8e9},
      {"8GB/s", 8e9},
      {"8GiB/s", 8 * kKi * kKi * kKi},
      {"1.5kB", 1500},
      {"0.5TB/s", 5e11},
      {"1Kibit", 128},
  };
  for (const auto& [text, rate] : cases) EXPECT_DOUBLE_EQ(parse_rate(text), rate) << text;
}

TEST(Rate, RejectsWhatIsNoRate) {
  for (const std::string text :
       {"", "10", "10G", "10Gi", "Gbit", "-1Gbit", "10Gbit/h", "10Gbit/", "10 per second", "nanGB", "10Gbit/s/s"}) {
    const std::string message = usage_error([&] { parse_rate(text); });
    EXPECT_NE(message.find("is not a rate"), std::string::npos) << '"' << text << "\": " << message;
    EXPECT_NE(message.find("'" + text + "'"), std::string::npos) << message;
  }
  for (const std::string text : {"0GB", "0bit", "0.0MB/s", "1e-323bit"}) {
    const std::string message = usage_error([&] { parse_rate(text); });
    EXPECT_NE(message.find("moves nothing"), std::string::npos) << '"' << text << "\": " << message;
  }
  for (const std::string text : {"1e308TB", "1e16B", "1001TB/s"}) {
    const std::string message = usage_error([&] { parse_rate(text); });
    EXPECT_NE(message.find("beyond reason"), std::string::npos) << '"' << text << "\": " << message;
  }
}

TEST(Time, NeedsAUnitUnlessItIsZero) {
  const struct {
    std::string_view text;
    double seconds;
  } cases[] = {
      {"0", 0},        {"0.0", 0},        {"0s", 0}, {"300ns", 300e-9}, {"20us", 20e-6}, {"20 us", 20e-6},
      {"20µs", 20e-6}, {"1.5ms", 1.5e-3}, {"2s", 2}, {"1e-3s", 1e-3},   {"3600s", 3600},
  };
  for (const auto& [text, seconds] : cases) EXPECT_DOUBLE_EQ(parse_time(text).count(), seconds) << text;

  for (const std::string text : {"", "5", "1", "us", "-1us", "5min", "5h", "5sec", "5uss", "5US", "infs", "nans"}) {
    const std::string message = usage_error([&] { parse_time(text); });
    EXPECT_NE(message.find("is not a time"), std::string::npos) << '"' << text << "\": " << message;
    EXPECT_NE(message.find("'" + text + "'"), std::string::npos) << message;
  }
  for (const std::string text : {"3601s", "1e300s", "1e13ns"}) {
    const std::string message = usage_error([&] { parse_time(text); });
    EXPECT_NE(message.find("beyond reason: at most an hour"), std::string::npos) << '"' << text << "\": " << message;
  }
}

TEST(Time, FormatsFourFiguresInTheUnitThatFits) {
  const struct {
    double seconds;
    std::string_view text;
  } cases[] = {
      {0, "0 us"},           {1e-9, "1 ns"},          {123.456e-9, "123.5 ns"}, {1e-6, "1 us"},
      {20e-6, "20 us"},      {1.2344e-3, "1.234 ms"}, {0.5, "500 ms"},          {1, "1 s"},
      {12.5, "12.5 s"},      {3600, "3600 s"},        {0.999999, "1 s"},        {0.999999e-3, "1 ms"},
      {0.999999e-6, "1 us"},
  };
  for (const auto& [seconds, text] : cases) EXPECT_EQ(format_time(Seconds(seconds)), text) << seconds;
}

TEST(Time, ComesBackFromItsText) {
  test::Random random(2);
  for (int i = 0; i < 1000; ++i) {
    const double seconds = random.between(1, 1 << 30) * std::pow(10.0, -random.between(7, 18));
    const double again = parse_time(format_time(Seconds(seconds))).count();
    EXPECT_NEAR(again, seconds, seconds * 0.0006) << format_time(Seconds(seconds));
  }
}

}  // namespace
}  // namespace trireme
