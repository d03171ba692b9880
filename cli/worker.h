// Processes that are timed: ranks of Trireme or of another library, driven line by line, so that one run can interleave
// several. What they say and are told is in bench/peers/worker.h; a worker that is not asked uses no processor.
#pragma once

#include "cli/interrupts.h"
#include "cli/process.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::cli {

/// Of one collective, on its slowest rank.
struct Timing {
  double median_us = 0;
  double min_us = 0;
  std::string algorithm{};  ///< that it ran by, if the worker says so
};

/// Not for several threads at once; the processes end with the thread that started them, too.
class [[nodiscard]] Worker {
 public:
  struct Options {
    const Interrupts* interrupts = nullptr;              ///< end any waiting
    std::function<void(int)> before_start = [](int) {};  ///< called with each process's position
  };

  /// Starts the commands, as far as their words and variables go. The first one is talked to; what all of them complain
  /// of is kept for messages. Throws SystemError with the reason if one can't be started.
  Worker(std::string name, const std::vector<Command>& commands, const Options& options);

  /// Ends all that was started.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Waits until all ranks are. Throws what run() does.
  void wait_until_ready(int ranks);

  /// Times `repeats` runs on a float32 buffer of `bytes` in all. `how` are further words of the question. Throws
  /// UsageError if the worker refuses; PeerError if a process ended, TimeoutError after `limit`, ProtocolError for an
  /// answer that makes no sense, and is of no more use after any of these. Throws Interrupted.
  Timing run(const std::string& collective, std::uint64_t bytes, int repeats, const std::string& how = "",
             std::chrono::milliseconds limit = std::chrono::minutes(10));

 private:
  class Talk;

  std::string name_;
  std::unique_ptr<Talk> talk_;
};

}  // namespace trireme::cli
