// How far the clock of another host is ahead of this one's, from questions that it has answered with its time.
#pragma once

#include <algorithm>
#include <chrono>

namespace trireme::cli {

/// The quickest answer says it best. But clocks drift apart, so that an answer counts for a minute at most: the best of
/// the present half minute, or of the one before.
class ClockOffset {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  /// An answer: when it was asked for and came, on this clock, and what it says. It was given, as far as is known, in
  /// the middle of the time that it took.
  void take(Nanoseconds asked, Nanoseconds there, Nanoseconds came) {
    if (came >= window_ends_) {
      before_ = came >= window_ends_ + kWindow ? Answer{} : present_;
      present_ = {};
      window_ends_ = came + kWindow;
    }
    const Nanoseconds took = came - asked;
    if (took <= present_.took) present_ = {.took = took, .offset = there - (asked + took / 2)};
  }

  /// 0 before the first answer.
  Nanoseconds get() const { return before_.took < present_.took ? before_.offset : present_.offset; }

 private:
  struct Answer {
    Nanoseconds took = Nanoseconds::max();
    Nanoseconds offset{0};
  };

  static constexpr Nanoseconds kWindow = std::chrono::seconds(30);
  Answer before_;
  Answer present_;
  Nanoseconds window_ends_ = Nanoseconds::min();
};

}  // namespace trireme::cli
