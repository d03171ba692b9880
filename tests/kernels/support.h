// What the tests of the kernels share: every instruction set, elements of every sort, memory with guards around it.
#pragma once

#include "kernels/reference.h"
#include "support/random.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <hwy/targets.h>
#include <limits>
#include <string>
#include <vector>

namespace trireme::test {

inline constexpr std::array kAllDtypes = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16,
                                          Dtype::i8,  Dtype::u8,  Dtype::i32, Dtype::i64};
inline constexpr std::array kAllOps = {Op::sum,     Op::average, Op::min,    Op::max,
                                       Op::product, Op::bit_and, Op::bit_or, Op::bit_xor};
static_assert(kAllDtypes.size() == kDtypes && kAllOps.size() == kOps);

/// Calls `test` once for each instruction set that this processor has, which the kernels then use.
template <typename Test>
void on_every_target(Test test) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    test();
    hwy::SetSupportedTargetsForTest(0);
    if (testing::Test::HasFatalFailure()) return;
  }
}

/// Zeros, infinities, not-a-numbers, the least and the greatest of each sort, and what is beside them; all with either
/// sign.
inline std::vector<Bits> special_elements(Dtype dtype) {
  const Bits sign = Bits{1} << (8 * bytes_of(dtype) - 1);
  std::vector<Bits> specials = {0, 1, 2, 3, sign - 1, sign - 2};
  if (!is_integer(dtype)) {
    const Bits one = nearest_float(dtype, 1);
    const Bits infinity = nearest_float(dtype, std::numeric_limits<long double>::infinity());
    const Bits least_normal = infinity & (~infinity + 1);
    for (const Bits centre : {one, infinity, least_normal, quiet_nan(dtype)}) {
      specials.insert(specials.end(), {centre - 1, centre, centre + 1});
    }
  }
  const std::size_t positive = specials.size();
  for (std::size_t i = 0; i < positive; ++i) specials.push_back(specials[i] | sign);
  return specials;
}

/// What the numbers given lead to. Every fourth is any bits or a special one; the others are such that many can be
/// reduced and leave something to see.
inline Bits some_element(Dtype dtype, std::size_t source, std::size_t index) {
  static const auto kSpecials = [] {
    std::array<std::vector<Bits>, kDtypes> all;
    for (const Dtype each : kAllDtypes) all[static_cast<std::size_t>(each)] = special_elements(each);
    return all;
  }();
  const std::vector<Bits>& specials = kSpecials[static_cast<std::size_t>(dtype)];
  const std::uint64_t random = mix(17, static_cast<int>(dtype), source, index);
  const Bits mask = ~Bits{0} >> (64 - 8 * bytes_of(dtype));
  if (index % 8 == 3) return specials[random % specials.size()];
  if (index % 8 == 7 || is_integer(dtype)) return random & mask;
  const long double digits = static_cast<long double>(random % 4001) - 2000;
  return nearest_float(dtype, digits / (index % 3 == 0 ? 1024 : 977));
}

inline std::vector<Bits> some_elements(Dtype dtype, std::size_t source, std::size_t elements) {
  std::vector<Bits> all(elements);
  for (std::size_t i = 0; i < elements; ++i) all[i] = some_element(dtype, source, i);
  return all;
}

/// Elements between guards, which start at a place that is aligned to elements and to nothing more.
class Guarded {
 public:
  Guarded(Dtype dtype, std::size_t elements, std::size_t number)
      : bytes_(elements * bytes_of(dtype)), begin_(kGuard + bytes_of(dtype) * (2 * number + 1)) {
    memory_.assign(begin_ + bytes_ + kGuard, kUntouched);
  }

  Guarded(Dtype dtype, const std::vector<Bits>& elements, std::size_t number)
      : Guarded(dtype, elements.size(), number) {
    for (std::size_t i = 0; i < elements.size(); ++i) put_element(dtype, data(), i, elements[i]);
  }

  std::byte* data() { return memory_.data() + begin_; }
  const std::byte* data() const { return memory_.data() + begin_; }

  bool guards_untouched() const {
    const auto untouched = [](std::byte value) { return value == kUntouched; };
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    return std::all_of(memory_.begin(), begin, untouched) && std::all_of(end, memory_.end(), untouched);
  }

 private:
  static constexpr std::byte kUntouched{0xA5};
  static constexpr std::size_t kGuard = 128;

  std::size_t bytes_;
  std::size_t begin_;
  std::vector<std::byte> memory_;
};

/// Whether memory starts with the first `elements` that are expected; names the first that it does not have.
inline testing::AssertionResult holds(Dtype dtype, const std::byte* memory, const std::vector<Bits>& expected,
                                      std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    const Bits bits = element(dtype, memory, i);
    if (bits == expected[i]) continue;
    return testing::AssertionFailure() << fmt::format("element {} of {} is {:#x} and should be {:#x}", i, elements,
                                                      bits, expected[i]);
  }
  return testing::AssertionSuccess();
}

/// Those that elements of that dtype can be reduced by.
inline std::vector<Op> operations(Dtype dtype) {
  std::vector<Op> all(kAllOps.begin(), kAllOps.end());
  std::erase_if(all, [dtype](Op op) { return !supports(dtype, op); });
  return all;
}

inline std::string name_of(const testing::TestParamInfo<Dtype>& info) { return std::string(to_string(info.param)); }

}  // namespace trireme::test
