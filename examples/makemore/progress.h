// How training goes: a bar on a terminal, else a line now and then.
#pragma once

#include <chrono>
#include <cstdint>

namespace makemore {

class Progress {
 public:
  /// Silent ones show nothing. `samples`: of all ranks together, in a step.
  Progress(bool silent, std::int64_t steps, std::int64_t samples);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `waited`: seconds of communication that nothing hid, since the beginning.
  void show(std::int64_t step, double loss, double waited);

 private:
  using Clock = std::chrono::steady_clock;

  bool silent_, terminal_;
  std::int64_t steps_, samples_;
  bool shown_ = false;
  // When something was shown last.
  std::int64_t last_step_ = 0;
  double last_waited_ = 0;
  Clock::time_point last_ = Clock::now();
};

}  // namespace makemore
