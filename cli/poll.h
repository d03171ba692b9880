// Waiting for many descriptors, each with what is to be done when it is ready.
#pragma once

#include <functional>
#include <poll.h>
#include <vector>

namespace trireme::cli {

/// For one wait: whoever waits for something adds it, then all are waited for at once.
class Poll {
 public:
  void on(int descriptor, short events, std::function<void()> action);

  /// Until one is ready or the time is over (-1: never), and then calls the actions of all that are, in the order in
  /// which they were added. Throws SystemError.
  void wait(int milliseconds);

 private:
  std::vector<pollfd> entries_;
  std::vector<std::function<void()>> actions_;
};

}  // namespace trireme::cli
