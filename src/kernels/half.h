// f16 and bf16, one number at a time, and rounding to odd.
#pragma once

#include "trireme/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace trireme::kernels {

inline float to_float(BFloat16 a) { return std::bit_cast<float>(std::uint32_t{a.bits} << 16U); }

// The exponents' biases differ by 112. Multiplying by 2^112 gives subnormals their exponent too.
inline float to_float(Float16 a) {
  const std::uint32_t sign = (a.bits & 0x8000U) << 16U;
  const std::uint32_t magnitude = (a.bits & 0x7FFFU) << 13U;
  const auto number = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t exponent = magnitude >= 0x0F800000 ? 0x7F800000 : 0;  // infinite, or not a number
  return std::bit_cast<float>(sign | number | exponent);
}

// The last digit of `bits` that is kept is at `place`; what is less is rounded to it, ties to even.
inline std::uint32_t round_off(std::uint32_t bits, unsigned place) {
  const std::uint32_t odd = bits >> place & 1U;
  return (bits + (1U << (place - 1)) - 1 + odd) >> place;
}

inline void round_to(BFloat16& to, float a) {
  const auto bits = std::bit_cast<std::uint32_t>(a);
  to.bits = static_cast<std::uint16_t>(std::isnan(a) ? 0x7FC0 : round_off(bits, 16));
}

inline void round_to(Float16& to, float a) {
  const auto bits = std::bit_cast<std::uint32_t>(a);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (magnitude < 0x38800000) {
    // Adding 1/2, whose last bit is worth what the last one of a subnormal is, rounds to that.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  } else {
    half = magnitude < 0x47800000 ? round_off(magnitude - (112U << 23U), 13) : 0x7C00;
  }
  to.bits = static_cast<std::uint16_t>(std::isnan(a) ? 0x7E00 : half | (bits >> 16U & 0x8000U));
}

// Rounded to odd: an inexact result is the one of its two neighbours whose last bit is 1. Rounding that to a narrower
// type gives what rounding at once would, where rounding twice to the nearest might not.
inline float to_odd_float(float a) { return a; }

inline float to_odd_float(double a) {
  const auto nearest = static_cast<float>(a);
  if (nearest == a || std::isnan(a)) return nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if ((bits & 1U) != 0) return nearest;
  const bool nearer_to_zero = (a < 0) == (nearest > a);
  return std::bit_cast<float>(nearer_to_zero ? bits + 1 : bits - 1);
}

inline float to_odd_float(std::int64_t a) {
  const std::uint64_t magnitude = a < 0 ? 0 - static_cast<std::uint64_t>(a) : static_cast<std::uint64_t>(a);
  const int lost = static_cast<int>(std::bit_width(magnitude)) - 24;
  if (lost <= 0) return static_cast<float>(a);
  const std::uint64_t rest = magnitude & ((std::uint64_t{1} << lost) - 1);
  const std::uint64_t kept = magnitude >> lost | static_cast<std::uint64_t>(rest != 0);
  const float size = static_cast<float>(kept) * static_cast<float>(std::uint64_t{1} << lost);
  return a < 0 ? -size : size;
}

}  // namespace trireme::kernels
