// What the rendezvous says of strangers, from its thread to that which writes.
#pragma once

#include "cli/process.h"

#include <mutex>
#include <string>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

namespace trireme::cli {

class Notices {
 public:
  Notices() {
    if (!bell_) fail_with_errno("no descriptor for notices");
  }

  /// Readable when there are some.
  int descriptor() const { return bell_.get(); }

  void add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(text);
    ::eventfd_write(bell_.get(), 1);
  }

  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    eventfd_t times = 0;
    ::eventfd_read(bell_.get(), &times);
    return std::exchange(texts_, {});
  }

 private:
  Descriptor bell_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace trireme::cli
