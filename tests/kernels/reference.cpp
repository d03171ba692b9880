#include "kernels/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace trireme::test {
namespace {

struct Layout {
  int mantissa_bits;  // without the leading 1
  int least_exponent;
  int greatest_exponent;
};

Layout layout(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16: return {10, -14, 15};
    case Dtype::bf16: return {7, -126, 127};
    case Dtype::f32: return {23, -126, 127};
    default: return {52, -1022, 1023};
  }
}

Bits sign_bit(Dtype dtype) { return Bits{1} << (8 * bytes_of(dtype) - 1); }

Bits infinity(Dtype dtype) {
  const auto [mantissa_bits, least, greatest] = layout(dtype);
  return static_cast<Bits>(greatest - least + 2) << mantissa_bits;
}

std::int64_t integer_of(Dtype dtype, Bits bits) {
  if (dtype == Dtype::u8) return static_cast<std::int64_t>(bits);
  const auto unused = static_cast<int>(64 - 8 * bytes_of(dtype));
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

Bits wrapped(Dtype dtype, std::uint64_t value) {
  return bytes_of(dtype) == 8 ? value : value & (sign_bit(dtype) * 2 - 1);
}

// By the type that the kernels promise to compute in.
template <typename Float>
Float compute(Op op, Float a, Float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Float>::quiet_NaN();
  const bool a_first = a < b || (a == b && std::signbit(a));
  switch (op) {
    case Op::min: return a_first ? a : b;
    case Op::max: return a_first ? b : a;
    case Op::product: return a * b;
    default: return a + b;
  }
}

Bits reduce_floats(Op op, Dtype dtype, Bits a, Bits b) {
  const long double x = value_of(dtype, a), y = value_of(dtype, b);
  if (dtype == Dtype::f64) return nearest_float(dtype, compute(op, static_cast<double>(x), static_cast<double>(y)));
  return nearest_float(dtype, compute(op, static_cast<float>(x), static_cast<float>(y)));
}

Bits reduce_integers(Op op, Dtype dtype, Bits a, Bits b) {
  const bool a_first = integer_of(dtype, a) < integer_of(dtype, b);
  switch (op) {
    case Op::min: return a_first ? a : b;
    case Op::max: return a_first ? b : a;
    case Op::product: return wrapped(dtype, a * b);
    case Op::bit_and: return a & b;
    case Op::bit_or: return a | b;
    case Op::bit_xor: return a ^ b;
    default: return wrapped(dtype, a + b);
  }
}

Bits divide(Dtype dtype, Bits a, int divisor) {
  if (is_integer(dtype)) return wrapped(dtype, static_cast<std::uint64_t>(integer_of(dtype, a) / divisor));
  const long double x = value_of(dtype, a);
  if (dtype == Dtype::f64) return nearest_float(dtype, static_cast<double>(x) / divisor);
  return nearest_float(dtype, static_cast<float>(x) / static_cast<float>(divisor));
}

struct Limits {
  long double least;
  long double greatest;
};

Limits limits(Dtype dtype) {
  const auto bits = static_cast<int>(8 * bytes_of(dtype));
  if (dtype == Dtype::u8) return {0, 255};
  return {-std::ldexp(1.0L, bits - 1), std::ldexp(1.0L, bits - 1) - 1};
}

}  // namespace

Bits element(Dtype dtype, const std::byte* memory, std::size_t index) {
  static_assert(std::endian::native == std::endian::little);
  Bits bits = 0;
  std::memcpy(&bits, memory + index * bytes_of(dtype), bytes_of(dtype));
  return bits;
}

void put_element(Dtype dtype, std::byte* memory, std::size_t index, Bits bits) {
  std::memcpy(memory + index * bytes_of(dtype), &bits, bytes_of(dtype));
}

long double value_of(Dtype dtype, Bits bits) {
  const auto [mantissa_bits, least, greatest] = layout(dtype);
  const Bits magnitude = bits & (sign_bit(dtype) - 1);
  const Bits mantissa = magnitude & ((Bits{1} << mantissa_bits) - 1);
  const auto exponent = static_cast<int>(magnitude >> mantissa_bits);
  long double value = 0;
  if (magnitude > infinity(dtype)) {
    value = std::numeric_limits<long double>::quiet_NaN();
  } else if (magnitude == infinity(dtype)) {
    value = std::numeric_limits<long double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<long double>(mantissa), least - mantissa_bits);
  } else {
    const Bits leading = Bits{1} << mantissa_bits;
    value = std::ldexp(static_cast<long double>(leading + mantissa), exponent - 1 + least - mantissa_bits);
  }
  return (bits & sign_bit(dtype)) != 0 ? -value : value;
}

Bits nearest_float(Dtype dtype, long double value) {
  if (std::isnan(value)) return quiet_nan(dtype);
  const auto [mantissa_bits, least, greatest] = layout(dtype);
  const Bits sign = std::signbit(value) ? sign_bit(dtype) : 0;
  const long double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (std::isinf(magnitude)) return sign | infinity(dtype);

  int exponent = std::max(std::ilogb(magnitude), least);
  // In units of the last place. Rounding may reach the next power of two.
  auto units = static_cast<Bits>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  const Bits leading = Bits{1} << mantissa_bits;
  if (units == 2 * leading) {
    units = leading;
    ++exponent;
  }
  if (exponent > greatest) return sign | infinity(dtype);
  if (units < leading) return sign | units;
  return sign | (static_cast<Bits>(exponent - least + 1) << mantissa_bits) | (units - leading);
}

Bits quiet_nan(Dtype dtype) { return infinity(dtype) | Bits{1} << (layout(dtype).mantissa_bits - 1); }

Bits reference_fold(Op op, Dtype dtype, std::span<const Bits> sources, int divisor) {
  Bits result = sources.front();
  for (const Bits source : sources.subspan(1)) {
    result = is_integer(dtype) ? reduce_integers(op, dtype, result, source) : reduce_floats(op, dtype, result, source);
  }
  return divisor == 1 ? result : divide(dtype, result, divisor);
}

Bits reference_convert(Dtype to, Dtype from, Bits bits) {
  if (to == from) return bits;
  const long double value = is_integer(from) ? static_cast<long double>(integer_of(from, bits)) : value_of(from, bits);
  if (!is_integer(to)) return nearest_float(to, value);
  if (std::isnan(value)) return 0;
  const long double kept = std::min(std::max(std::trunc(value), limits(to).least), limits(to).greatest);
  return wrapped(to, static_cast<std::uint64_t>(static_cast<std::int64_t>(kept)));
}

}  // namespace trireme::test
