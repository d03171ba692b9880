// What ranks give each other in tests, where it lies, and what should become of it.
#pragma once

#include "kernels/half.h"
#include "support/random.h"
#include "trireme/communicator.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace trireme::test {

/// Calls f with a value of the C++ type of the dtype.
template <typename F>
auto with_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f32: return f(float{});
    case Dtype::f64: return f(double{});
    case Dtype::f16: return f(Float16{});
    case Dtype::bf16: return f(BFloat16{});
    case Dtype::i8: return f(std::int8_t{});
    case Dtype::u8: return f(std::uint8_t{});
    case Dtype::i32: return f(std::int32_t{});
    default: return f(std::int64_t{});
  }
}

template <typename T>
void assign(T& to, double from) {
  if constexpr (std::is_integral_v<T>) {
    to = static_cast<T>(static_cast<std::int64_t>(from));
  } else if constexpr (std::is_floating_point_v<T>) {
    to = static_cast<T>(from);
  } else {
    kernels::round_to(to, static_cast<float>(from));
  }
}

/// The most that a value is, so that nine of them add up without rounding.
inline std::uint32_t values_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8: return 14;
    case Dtype::u8:
    case Dtype::bf16: return 28;
    case Dtype::f16: return 200;
    default: return 131072;
  }
}

/// Element `index` of what rank `rank` gives: small whole numbers, other ones everywhere.
inline std::int64_t value(std::uint32_t seed, int rank, std::size_t index, std::uint32_t values) {
  std::uint32_t x = static_cast<std::uint32_t>(index) * 0x85EBCA6BU ^
                    (static_cast<std::uint32_t>(rank) + seed * 64 + 1) * 0x9E3779B1U;
  x = (x ^ x >> 15U) * 0x2C1B3C6DU;
  x = (x ^ x >> 12U) * 0x297A2D39U;
  return static_cast<std::int64_t>((std::uint64_t{x} * values) >> 32U);
}

/// One rank's value for an operation: products stay exact if they are of few twos.
inline std::int64_t value_for(Op op, Dtype dtype, std::uint32_t seed, int rank, std::size_t index) {
  if (op == Op::product) return 1 + value(seed, rank, index, 2);
  return value(seed, rank, index, values_of(dtype));
}

/// The reduction of so many ranks' values, as a number that the dtype holds, or, for an average, rounds to.
inline double reduced(Op op, Dtype dtype, std::uint32_t seed, int ranks, std::size_t index) {
  std::int64_t all = value_for(op, dtype, seed, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t one = value_for(op, dtype, seed, rank, index);
    switch (op) {
      case Op::min: all = std::min(all, one); break;
      case Op::max: all = std::max(all, one); break;
      case Op::product: all *= one; break;
      case Op::bit_and: all &= one; break;
      case Op::bit_or: all |= one; break;
      case Op::bit_xor: all ^= one; break;
      default: all += one; break;
    }
  }
  if (op == Op::average && !is_integer(dtype)) return static_cast<double>(all) / ranks;
  if (op == Op::average) all /= ranks;
  return static_cast<double>(all);
}

/// Memory between guards, in a window or not.
class Memory {
 public:
  Memory(Communicator& owner, std::size_t elements, Dtype dtype, bool in_window)
      : elements_(elements), dtype_(dtype), bytes_(elements * bytes_of(dtype)) {
    if (in_window) {
      window_ = owner.window(bytes_ + 2 * kGuard);
      start_ = window_.data();
    } else {
      ordinary_.resize(bytes_ + 2 * kGuard);
      start_ = ordinary_.data();
    }
    std::memset(start_, kSign, bytes_ + 2 * kGuard);
  }

  std::byte* data() const { return start_ + kGuard; }
  std::size_t elements() const { return elements_; }
  Buffer buffer() const { return {data(), elements_, dtype_}; }
  Buffer part(std::size_t first, std::size_t count) const { return {data() + first * bytes_of(dtype_), count, dtype_}; }

  /// Element i becomes f(i).
  template <typename F>
  void fill(F&& f) {
    with_type(dtype_, [&](auto type) {
      auto* to = reinterpret_cast<decltype(type)*>(data());
      for (std::size_t i = 0; i < elements_; ++i) assign(to[i], static_cast<double>(f(i)));
    });
  }

  /// What is wrong, if element i is not f(i) somewhere or a guard has changed.
  template <typename F>
  std::string differs(F&& f) const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (start_[i] != std::byte{kSign}) return "the memory before it has changed";
      if (data()[bytes_ + i] != std::byte{kSign}) return "the memory behind it has changed";
    }
    return with_type(dtype_, [&](auto type) -> std::string {
      const auto* is = reinterpret_cast<const decltype(type)*>(data());
      for (std::size_t i = 0; i < elements_; ++i) {
        auto expected = type;
        assign(expected, static_cast<double>(f(i)));
        if (std::memcmp(&expected, is + i, sizeof expected) == 0) continue;
        return "element " + std::to_string(i) + " of " + std::to_string(elements_) + " is not " +
               std::to_string(static_cast<double>(f(i)));
      }
      return "";
    });
  }

  bool operator==(const Memory& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kSign = 0xA5;

  std::size_t elements_;
  Dtype dtype_;
  std::size_t bytes_;
  Window window_;
  std::vector<std::byte> ordinary_;
  std::byte* start_ = nullptr;
};

}  // namespace trireme::test
