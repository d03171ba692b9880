// A progress bar on a terminal; nothing at all in a pipe.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace trireme::cli {

class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// The part that is done, from 0 to 1.
  void show(double part);

  /// Takes the bar off the terminal, so that something can be printed.
  void clear();

  /// For functions that report their progress.
  std::function<void(double)> reporter() {
    return [this](double part) { show(part); };
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point next_;  // no sooner: what is quickly done needs no bar, and a terminal is slow
};

}  // namespace trireme::cli
