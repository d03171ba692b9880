// Conversions between all dtypes, beside the reference: all halves, and what lies on both sides of where rounding
// turns.
#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "kernels/support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace trireme::kernels {
namespace {

using test::Bits;
using test::Guarded;
using test::holds;
using test::on_every_target;

void expect_reference(Dtype to, Dtype from, const std::vector<Bits>& elements,
                      const std::vector<std::size_t>& lengths) {
  SCOPED_TRACE(fmt::format("{} to {}", to_string(from), to_string(to)));
  const Guarded source(from, elements, 0);
  std::vector<Bits> expected(elements.size());
  for (std::size_t i = 0; i < elements.size(); ++i) expected[i] = test::reference_convert(to, from, elements[i]);
  on_every_target([&] {
    for (const std::size_t length : lengths) {
      Guarded result(to, length, 1);
      convert(to, result.data(), from, source.data(), length);
      ASSERT_TRUE(holds(to, result.data(), expected, length));
      ASSERT_TRUE(result.guards_untouched());
    }
  });
}

void expect_reference(Dtype to, Dtype from, const std::vector<Bits>& elements) {
  expect_reference(to, from, elements, {elements.size()});
}

TEST(Convert, EveryPairAndLength) {
  for (const Dtype from : test::kAllDtypes) {
    std::vector<Bits> elements = test::special_elements(from);
    for (std::size_t i = 0; elements.size() < 1000; ++i) elements.push_back(test::some_element(from, 0, i));
    for (const Dtype to : test::kAllDtypes) {
      expect_reference(to, from, elements, {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 1000});
    }
  }
}

TEST(Convert, AllHalvesToAll) {
  std::vector<Bits> all(65536);
  std::iota(all.begin(), all.end(), 0);
  for (const Dtype from : {Dtype::f16, Dtype::bf16}) {
    for (const Dtype to : test::kAllDtypes) expect_reference(to, from, all);
  }
}

TEST(Convert, HalvesComeBackFromWiderFloats) {
  for (const Dtype half : {Dtype::f16, Dtype::bf16}) {
    for (Bits bits = 0; bits < 65536; ++bits) {
      const Bits back = std::isnan(test::value_of(half, bits)) ? test::quiet_nan(half) : bits;
      for (const Dtype wide : {Dtype::f32, Dtype::f64}) {
        std::uint64_t widened = 0;
        std::uint64_t narrowed = 0;
        convert(wide, reinterpret_cast<std::byte*>(&widened), half, reinterpret_cast<const std::byte*>(&bits), 1);
        convert(half, reinterpret_cast<std::byte*>(&narrowed), wide, reinterpret_cast<const std::byte*>(&widened), 1);
        ASSERT_EQ(narrowed, back) << "by " << to_string(wide);
      }
    }
  }
}

// Half way between a half and the next, and the wider float's neighbours of that: there a second rounding would show.
TEST(Convert, RoundsOnceToTheNearest) {
  for (const Dtype half : {Dtype::f16, Dtype::bf16}) {
    for (const Dtype wide : {Dtype::f32, Dtype::f64}) {
      std::vector<Bits> elements;
      const Bits infinity = test::nearest_float(half, INFINITY);
      for (Bits bits = 0; bits < infinity; ++bits) {
        const long double value = test::value_of(half, bits);
        const long double next =
            bits + 1 == infinity ? 2 * value - test::value_of(half, bits - 1) : test::value_of(half, bits + 1);
        const Bits middle = test::nearest_float(wide, (value + next) / 2);
        for (const Bits beside : {middle - 1, middle, middle + 1}) {
          elements.push_back(beside);
          elements.push_back(beside | Bits{1} << (8 * bytes_of(wide) - 1));
        }
      }
      expect_reference(half, wide, elements);
    }
  }
}

TEST(Convert, RandomFloatsToNarrowerOnes) {
  constexpr std::size_t kElements = std::size_t{20000} * test::kEffort;
  std::vector<Bits> singles(kElements), doubles(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    singles[i] = test::mix(5, i) & 0xFFFFFFFFU;
    // Doubles that singles and bf16 can hold, more or less: there are few of them among all.
    doubles[i] = test::mix(6, i) & 0x800FFFFFFFFFFFFFU;
    doubles[i] |= (Bits{1023 - 155} + test::mix(7, i) % 290) << 52U;
  }
  for (const Dtype to : {Dtype::f16, Dtype::bf16}) expect_reference(to, Dtype::f32, singles);
  for (const Dtype to : {Dtype::f16, Dtype::bf16, Dtype::f32}) expect_reference(to, Dtype::f64, doubles);
}

TEST(Convert, IntegersToFloatsThatCannotHoldThem) {
  for (const Dtype from : {Dtype::i32, Dtype::i64}) {
    const auto bits = static_cast<int>(8 * bytes_of(from));
    const Bits mask = ~Bits{0} >> (64 - bits);
    std::vector<Bits> elements;
    for (int length = 1; length < bits; ++length) {
      for (int digits = 1; digits <= length; ++digits) {
        // The first `digits` bits are 1, then there is 1 more, far on, or there is not.
        const Bits first = ((Bits{1} << digits) - 1) << (length - digits);
        for (const Bits element : {first - 1, first, first + 1, first ^ (first >> 1U), (first ^ (first >> 1U)) + 1}) {
          elements.push_back(element & mask);
          elements.push_back((0 - element) & mask);
        }
      }
    }
    for (std::size_t i = 0; i < 20000; ++i) elements.push_back((test::mix(8, i) & mask) >> i % bits);
    for (const Dtype to : {Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64}) expect_reference(to, from, elements);
  }
}

template <typename To, typename From>
To converted(From from) {
  To to{};
  convert(kDtypeOf<To>, reinterpret_cast<std::byte*>(&to), kDtypeOf<From>, reinterpret_cast<const std::byte*>(&from),
          1);
  return to;
}

TEST(Convert, FloatsAreCutAndKeptWithinAnIntegersLimits) {
  EXPECT_EQ((converted<std::int32_t>(-1.9F)), -1);
  EXPECT_EQ((converted<std::int32_t>(3e9F)), 2147483647);
  EXPECT_EQ((converted<std::int32_t>(-INFINITY)), -2147483647 - 1);
  EXPECT_EQ((converted<std::int64_t>(9.3e18)), 9223372036854775807);
  EXPECT_EQ((converted<std::uint8_t>(-5.0)), 0);
  EXPECT_EQ((converted<std::uint8_t>(255.9)), 255);
  EXPECT_EQ((converted<std::int8_t>(std::nan(""))), 0);
  EXPECT_EQ((converted<std::int8_t>(std::int32_t{300})), 127);
  EXPECT_EQ((converted<std::uint8_t>(std::int8_t{-1})), 0);
}

TEST(Convert, NotANumberNeverBecomesInfinite) {
  for (Bits mantissa = 1; mantissa < 1U << 23U; mantissa = mantissa * 2 + 1) {
    for (const Bits bits : {mantissa, (1U << 23U) - mantissa}) {
      const auto nan = std::bit_cast<float>(static_cast<std::uint32_t>(0x7F800000U | bits));
      EXPECT_EQ(converted<Float16>(nan).bits, 0x7E00);
      EXPECT_EQ(converted<BFloat16>(nan).bits, 0x7FC0);
    }
  }
}

}  // namespace
}  // namespace trireme::kernels
