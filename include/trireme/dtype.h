// What a buffer's elements are, and how they are reduced.
#pragma once

#include "trireme/error.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

enum class Dtype : std::uint8_t { f32, f64, f16, bf16, i8, u8, i32, i64 };

inline constexpr int kDtypes = 8;

enum class Op : std::uint8_t {
  sum,
  average,  ///< the sum, rounded to the dtype and then divided by the ranks; integers are cut towards zero
  min,      ///< if an element is not a number, so is the result
  max,      ///< if an element is not a number, so is the result
  product,
  bit_and,  ///< integers only, as are the next two
  bit_or,
  bit_xor,
};

inline constexpr int kOps = 8;

/// An IEEE 754 half. Storage only: reduced in float, and rounded after every operation. A sum over 65504 is infinite.
struct Float16 {
  std::uint16_t bits;
};

/// The upper half of a float. Storage only, as Float16.
struct BFloat16 {
  std::uint16_t bits;
};

std::size_t bytes_of(Dtype dtype);
bool is_integer(Dtype dtype);

/// Whether elements of that dtype can be reduced so.
bool supports(Dtype dtype, Op op);

std::string_view to_string(Dtype dtype);
std::string_view to_string(Op op);

/// By name. They throw UsageError, which suggests the nearest.
Dtype parse_dtype(std::string_view name);
Op parse_op(std::string_view name);

/// The dtype of a C++ type.
template <typename T>
inline constexpr Dtype kDtypeOf = [] {
  static_assert(sizeof(T) == 0, "Trireme has no dtype for this type");
  return Dtype::u8;
}();
template <>
inline constexpr Dtype kDtypeOf<float> = Dtype::f32;
template <>
inline constexpr Dtype kDtypeOf<double> = Dtype::f64;
template <>
inline constexpr Dtype kDtypeOf<Float16> = Dtype::f16;
template <>
inline constexpr Dtype kDtypeOf<BFloat16> = Dtype::bf16;
template <>
inline constexpr Dtype kDtypeOf<std::int8_t> = Dtype::i8;
template <>
inline constexpr Dtype kDtypeOf<std::uint8_t> = Dtype::u8;
template <>
inline constexpr Dtype kDtypeOf<std::int32_t> = Dtype::i32;
template <>
inline constexpr Dtype kDtypeOf<std::int64_t> = Dtype::i64;

}  // namespace trireme
