// Which operations have a time of their own on the board.
//
// To read the clock takes longer than all else that recording does: more than a hundredth of an operation that takes a
// microsecond. Where a rank's operations follow one another that fast, only one of many is timed, the same on all ranks,
// so that it can be said who came last to it.
//
// It lies in memory that processes share, but only its rank uses it, from one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace trireme {

/// The processor's own counter where there is one, at half the cost of the clock; otherwise nanoseconds.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

class Pace {
 public:
  /// How many operations of a communicator need no time, from this one of it on.
  std::uint32_t untimed(std::uint32_t sequence) const {
    if (quick_ < kFew) return 0;
    const std::uint32_t timed = timed_of(sequence / kMany);
    return (timed >= sequence ? timed : timed_of(sequence / kMany + 1)) - sequence;
  }

  /// The time of an operation; `number`: how many the rank has begun before.
  std::uint64_t read(std::uint64_t number) {
    const std::uint64_t time = ticks();
    quick_ = time - time_ < (number - number_) * kQuick ? std::min(quick_ + 1, kFew) : 0;
    number_ = number;
    return time_ = time;
  }

  /// What was read last.
  std::uint64_t last() const { return time_; }

 private:
  /// Some three microseconds: processors count two or three times in a nanosecond. Of what takes longer, reading the
  /// clock is less than a hundredth.
#if defined(__x86_64__)
  static constexpr std::uint64_t kQuick = 8000;
#else
  static constexpr std::uint64_t kQuick = 3000;
#endif
  /// That many in a row are timed before one is not.
  static constexpr std::uint32_t kFew = 8;
  /// One of that many is timed then, but not always the same one of a loop in the program.
  static constexpr std::uint32_t kMany = 64;

  static std::uint32_t timed_of(std::uint32_t turn) { return turn * kMany + (turn * 0x9e3779b9U >> 26); }

  std::uint64_t number_ = 0;  ///< of the operation for which the clock was read last
  std::uint64_t time_ = 0;
  std::uint32_t quick_ = 0;  ///< how often in a row those since the last reading had taken no longer than kQuick each
};

}  // namespace trireme
