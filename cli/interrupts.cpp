#include "cli/interrupts.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

namespace trireme::cli {

HeldSignals::HeldSignals(std::initializer_list<int> signals) {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : signals) {
    struct sigaction present {};
    ::sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) ::sigaddset(&taken, signal);
  }
  descriptor_ = rendezvous::Descriptor(::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!descriptor_) {
    throw SystemError(fmt::format("no descriptor for signals: {}", std::generic_category().message(errno)));
  }
  ::pthread_sigmask(SIG_BLOCK, &taken, &before_);
}

Interrupted::Interrupted(int signal_number)
    : Error(fmt::format("ended by signal {} ({})", signal_number, ::strsignal(signal_number))),
      signal_(signal_number) {}

void Interrupts::check() const {
  signalfd_siginfo info{};
  if (::read(descriptor(), &info, sizeof info) == sizeof info) throw Interrupted(static_cast<int>(info.ssi_signo));
}

}  // namespace trireme::cli
