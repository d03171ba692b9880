// Folds of two elements that are hard: every special one with every other, and halves with all that there are. Then the
// promises of kernels.h, by hand.
#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "kernels/support.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace trireme::kernels {
namespace {

using test::Bits;
using test::Guarded;
using test::holds;
using test::on_every_target;

void expect_reference(Dtype dtype, Op op, const std::vector<Bits>& a, const std::vector<Bits>& b) {
  SCOPED_TRACE(to_string(op));
  std::vector<Bits> expected(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    expected[i] = test::reference_fold(op, dtype, std::array{a[i], b[i]}, 1);
  }
  const Guarded left(dtype, a, 0), right(dtype, b, 1);
  const std::array sources = {left.data(), right.data()};
  on_every_target([&] {
    Guarded result(dtype, a.size(), 2);
    std::byte* const to = result.data();
    fold(op, dtype, {&to, 1}, sources, a.size());
    ASSERT_TRUE(holds(dtype, to, expected, a.size()));
  });
}

class Pairs : public testing::TestWithParam<Dtype> {};

TEST_P(Pairs, OfSpecialElements) {
  const std::vector<Bits> specials = test::special_elements(GetParam());
  std::vector<Bits> a, b;
  for (const Bits left : specials) {
    for (const Bits right : specials) {
      a.push_back(left);
      b.push_back(right);
    }
  }
  for (const Op op : test::operations(GetParam())) expect_reference(GetParam(), op, a, b);
}

INSTANTIATE_TEST_SUITE_P(Of, Pairs, testing::ValuesIn(test::kAllDtypes), test::name_of);

class HalfPairs : public testing::TestWithParam<Dtype> {};

TEST_P(HalfPairs, OfAllWithSome) {
  std::vector<Bits> all(65536), others(65536);
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t i = 0; i < all.size(); ++i) others[i] = test::mix(3, i) & 0xFFFFU;
  for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
    expect_reference(GetParam(), op, all, others);
    for (const Bits other : {0x0001U, 0x3C00U, 0x3F80U, 0x8400U, 0xFBFFU}) {
      expect_reference(GetParam(), op, all, std::vector<Bits>(all.size(), other));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, HalfPairs, testing::Values(Dtype::f16, Dtype::bf16), test::name_of);

template <typename T>
T folded(Op op, std::vector<T> values, int divisor = 1) {
  T result{};
  auto* const to = reinterpret_cast<std::byte*>(&result);
  std::vector<const std::byte*> sources(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) sources[i] = reinterpret_cast<const std::byte*>(&values[i]);
  fold(op, kDtypeOf<T>, {&to, 1}, sources, 1, divisor);
  return result;
}

std::uint16_t folded_f16(Op op, std::initializer_list<float> values, int divisor = 1) {
  std::vector<Float16> halves;
  for (const float value : values) {
    halves.push_back({static_cast<std::uint16_t>(test::nearest_float(Dtype::f16, value))});
  }
  return folded(op, halves, divisor).bits;
}

TEST(Promises, IntegersWrap) {
  EXPECT_EQ(folded<std::int8_t>(Op::sum, {100, 100}), -56);
  EXPECT_EQ(folded<std::uint8_t>(Op::sum, {200, 100}), 44);
  EXPECT_EQ(folded<std::int8_t>(Op::product, {-128, -128, 1}), 0);
  EXPECT_EQ(folded<std::int32_t>(Op::sum, {2147483647, 1}), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(folded<std::int64_t>(Op::product, {std::int64_t{1} << 62, 2}), std::numeric_limits<std::int64_t>::min());
}

TEST(Promises, IntegersAreCutTowardsZero) {
  EXPECT_EQ(folded<std::int32_t>(Op::average, {-3, -4}, 2), -3);
  EXPECT_EQ(folded<std::int32_t>(Op::average, {3, 4}, 2), 3);
  EXPECT_EQ(folded<std::int8_t>(Op::average, {-100, -1}, 2), -50);
  EXPECT_EQ(folded<std::int64_t>(Op::average, {std::numeric_limits<std::int64_t>::max(), 0}, 3), 3074457345618258602);
}

TEST(Promises, NotANumberStaysSo) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
    EXPECT_TRUE(std::isnan(folded<float>(op, {1, nan})));
    EXPECT_TRUE(std::isnan(folded<float>(op, {nan, 1})));
    EXPECT_TRUE(std::isnan(folded<float>(op, {nan, infinity, -infinity})));
  }
  EXPECT_EQ(std::bit_cast<std::uint32_t>(folded<float>(Op::sum, {infinity, -infinity})), 0x7FC00000U);
  EXPECT_EQ(folded<BFloat16>(Op::sum, {{0x7F81}, {0x0000}}).bits, 0x7FC0);
  EXPECT_EQ(folded<Float16>(Op::max, {{0xFFFF}, {0x0000}}).bits, 0x7E00);
}

TEST(Promises, TheNegativeZeroIsTheLess) {
  for (const bool reversed : {false, true}) {
    const std::vector<double> zeros = reversed ? std::vector{0.0, -0.0} : std::vector{-0.0, 0.0};
    EXPECT_TRUE(std::signbit(folded(Op::min, zeros)));
    EXPECT_FALSE(std::signbit(folded(Op::max, zeros)));
  }
}

TEST(Promises, HalvesAreRoundedAfterEachOperation) {
  EXPECT_EQ(folded_f16(Op::sum, {2048, 1, 1}), 0x6800) << "2048, and not the 2050 of one rounding";
  EXPECT_EQ(folded_f16(Op::average, {2048, 1}, 2), 0x6400) << "1024";
  EXPECT_EQ(folded_f16(Op::sum, {65504, 16}), 0x7C00) << "infinity";
  EXPECT_EQ(folded_f16(Op::sum, {65504, 15}), 0x7BFF);
  EXPECT_EQ(folded<BFloat16>(Op::sum, {{0x4380}, {0x3F80}, {0x3F80}}).bits, 0x4380) << "256 + 1 + 1";
  EXPECT_EQ(folded<BFloat16>(Op::sum, {{0x7F7F}, {0x7F7F}}).bits, 0x7F80) << "infinity";
}

TEST(Promises, ASourceAloneKeepsItsBits) {
  EXPECT_EQ(folded<Float16>(Op::sum, {{0x7C01}}).bits, 0x7C01) << "a signalling not-a-number";
  EXPECT_EQ(std::bit_cast<std::uint32_t>(folded(Op::max, std::vector{std::bit_cast<float>(0xFFC00123U)})), 0xFFC00123U);
}

}  // namespace
}  // namespace trireme::kernels
