#include "cli/interrupts.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

namespace trireme::cli {

Interrupted::Interrupted(int signal_number)
    : Error(fmt::format("ended by signal {} ({})", signal_number, ::strsignal(signal_number))),
      signal_(signal_number) {}

Interrupts::Interrupts() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&taken, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &taken, &before_);
  descriptor_ = ::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
  if (descriptor_ < 0) {
    const std::string why = std::generic_category().message(errno);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw SystemError(fmt::format("no descriptor for signals: {}", why));
  }
}

Interrupts::~Interrupts() {
  ::close(descriptor_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupts::check() const {
  signalfd_siginfo info{};
  if (::read(descriptor_, &info, sizeof info) == sizeof info) throw Interrupted(static_cast<int>(info.ssi_signo));
}

}  // namespace trireme::cli
