#include "progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace makemore {

Progress::Progress(bool silent, std::int64_t steps, std::int64_t samples)
    : silent_(silent), terminal_(::isatty(STDERR_FILENO) == 1), steps_(steps), samples_(samples) {}

// The bar stays, and what follows is written below it.
Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\n");
}

void Progress::show(std::int64_t step, double loss, double waited) {
  if (silent_) return;
  const std::int64_t line_every = std::max<std::int64_t>(1, steps_ / 10);
  if (!terminal_ && step != steps_ && step / line_every == last_step_ / line_every) return;
  const std::chrono::duration<double> passed = Clock::now() - last_;
  const double rate = static_cast<double>((step - last_step_) * samples_) / passed.count();
  const double share = (waited - last_waited_) / passed.count();
  last_ = Clock::now();
  last_step_ = step;
  last_waited_ = waited;
  const auto numbers = fmt::format("step {}/{}  loss {:.4f}  {:.0f} samples/s  {:.0f} % communication not hidden", step,
                                   steps_, loss, rate, 100 * share);
  if (!terminal_) {
    fmt::print(stderr, "{}\n", numbers);
    return;
  }
  constexpr std::int64_t kWidth = 24;
  const std::int64_t filled = kWidth * step / steps_;
  fmt::print(stderr, "\r\033[K[{:#<{}}{:{}}] {}", "", filled, "", kWidth - filled, numbers);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace makemore
