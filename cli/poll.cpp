#include "cli/poll.h"

#include "cli/process.h"

#include <cerrno>
#include <utility>

namespace trireme::cli {

void Poll::on(int descriptor, short events, std::function<void()> action) {
  entries_.push_back({descriptor, events, 0});
  actions_.push_back(std::move(action));
}

void Poll::wait(int milliseconds) {
  if (::poll(entries_.data(), entries_.size(), milliseconds) < 0 && errno != EINTR) fail_with_errno("poll");
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].revents != 0) actions_[i]();
  }
}

}  // namespace trireme::cli
