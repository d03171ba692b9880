#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kPace = std::chrono::milliseconds(100);
constexpr int kWidth = 40;

}  // namespace

Progress::Progress(std::string label)
    : label_(std::move(label)), terminal_(::isatty(STDERR_FILENO) == 1), next_(Clock::now() + kPatience) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

void Progress::show(double part) {
  if (!terminal_ || Clock::now() < next_) return;
  next_ = Clock::now() + kPace;
  shown_ = true;
  part = std::clamp(part, 0.0, 1.0);
  const int filled = static_cast<int>(part * kWidth);
  fmt::print(stderr, "\r{} [{:#<{}}{:{}}] {:3.0f} %", label_, "", filled, "", kWidth - filled, 100 * part);
  std::fflush(stderr);
}

}  // namespace trireme::cli
