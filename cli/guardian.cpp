#include "cli/guardian.h"

#include <cerrno>
#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace trireme::cli {
namespace {

// In place of a group: all went well.
constexpr pid_t kOver = 0;

// In the child of a process with threads, so that only system calls are safe, and memory that is there already. It
// holds nothing open that others might wait for the end of.
[[noreturn]] void stand_guard(const Pipe& pipe, std::vector<pid_t>& groups) {
  ::setsid();
  ::prctl(PR_SET_NAME, "trireme-guard");
  const int from = pipe.out.get();
  if (from > 0) ::close_range(0, static_cast<unsigned>(from) - 1, 0);
  ::close_range(static_cast<unsigned>(from) + 1, ~0U, 0);
  std::size_t count = 0;
  while (true) {
    pid_t group = kOver;
    const ssize_t bytes = ::read(from, &group, sizeof(group));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != sizeof(group)) break;  // The other side is gone.
    if (group == kOver) ::_exit(0);
    if (count < groups.size()) groups[count++] = group;
  }
  for (std::size_t i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian(std::size_t groups) {
  std::vector<pid_t> memory(groups);
  Pipe pipe;
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // What is to end its parent does not end it.
  pid_ = ::fork();
  if (pid_ == 0) stand_guard(pipe, memory);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  if (pid_ < 0) fail_with_errno("there can't be one more process");
  in_ = std::move(pipe.in);
}

Guardian::~Guardian() {
  tell(kOver);
  in_.close();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
}

void Guardian::guard_this() const { tell(::getpgrp()); }

// So few bytes are written at once or not at all.
void Guardian::tell(pid_t group) const {
  [[maybe_unused]] const ssize_t written = ::write(in_.get(), &group, sizeof(group));
}

}  // namespace trireme::cli
