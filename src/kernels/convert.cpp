#include "kernels/convert.h"

#include "kernels/half.h"
#include "kernels/kernels.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

namespace trireme::kernels {
namespace {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <typename To, typename From>
To whole_number(From a) {
  using Limits = std::numeric_limits<To>;
  if constexpr (std::is_integral_v<From>) {
    if (std::cmp_less(a, Limits::min())) return Limits::min();
    if (std::cmp_greater(a, Limits::max())) return Limits::max();
  } else {
    // A power of two, which is exact in any float; the greatest integer may not be.
    constexpr From kPastMax = 2 * static_cast<From>(std::uint64_t{1} << (Limits::digits - 1));
    if (std::isnan(a)) return 0;
    if (a < static_cast<From>(Limits::min())) return Limits::min();
    if (a >= kPastMax) return Limits::max();
  }
  return static_cast<To>(a);
}

template <typename To, typename From>
To converted(From a) {
  if constexpr (kIsHalf<From>) {
    return converted<To>(to_float(a));
  } else if constexpr (kIsHalf<To>) {
    To half;
    if constexpr (std::is_integral_v<From>) {
      round_to(half, to_odd_float(std::int64_t{a}));
    } else {
      round_to(half, to_odd_float(a));
    }
    return half;
  } else if constexpr (std::is_integral_v<To>) {
    return whole_number<To>(a);
  } else {
    if (std::isnan(a)) return std::numeric_limits<To>::quiet_NaN();
    return static_cast<To>(a);
  }
}

// Elements are copied in and out as bytes, as memory may hold another type of the same kind.
template <typename To, typename From>
void convert_each(std::byte* to, const std::byte* from, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    From a;
    std::memcpy(&a, from + i * sizeof(From), sizeof(From));
    const To b = converted<To>(a);
    std::memcpy(to + i * sizeof(To), &b, sizeof(To));
  }
}

// In the order of Dtype.
using Types = std::tuple<float, double, Float16, BFloat16, std::int8_t, std::uint8_t, std::int32_t, std::int64_t>;
static_assert(std::tuple_size_v<Types> == kDtypes);

using Conversion = void (*)(std::byte*, const std::byte*, std::size_t);

// The conversion of number To * kDtypes + From.
template <std::size_t... kNumber>
constexpr std::array<Conversion, sizeof...(kNumber)> make_conversions(std::index_sequence<kNumber...>) {
  return {
      convert_each<std::tuple_element_t<kNumber / kDtypes, Types>, std::tuple_element_t<kNumber % kDtypes, Types>>...};
}

constexpr auto kConversions = make_conversions(std::make_index_sequence<std::size_t{kDtypes} * kDtypes>());

bool is_in_float(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16; }

}  // namespace

void convert(Dtype to_dtype, std::byte* to, Dtype from_dtype, const std::byte* from, std::size_t elements) {
  if (to_dtype == from_dtype) {
    fold(Op::sum, to_dtype, {&to, 1}, {&from, 1}, elements);
  } else if (is_in_float(to_dtype) && is_in_float(from_dtype)) {
    convert_halves(to_dtype, to, from_dtype, from, elements);
  } else if (to_dtype == Dtype::f64 && from_dtype == Dtype::f32) {
    convert_to_f64(to, from, elements);
  } else if (to_dtype == Dtype::f32 && from_dtype == Dtype::f64) {
    convert_to_f32(to, from, elements);
  } else {
    kConversions[static_cast<std::size_t>(to_dtype) * kDtypes + static_cast<std::size_t>(from_dtype)](to, from,
                                                                                                      elements);
  }
}

}  // namespace trireme::kernels
