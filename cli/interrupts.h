// Ctrl-C and its like as something to wait for, so that a command can end what it has started before it goes.
#pragma once

#include "trireme/error.h"

#include <csignal>

namespace trireme::cli {

/// The user, or the system, wants the command to end.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal_number);

  /// What a shell expects of who was ended by that signal.
  int exit_status() const { return 128 + signal_; }

 private:
  int signal_;
};

/// While it lives, SIGINT, SIGTERM and SIGHUP end nothing, but make descriptor() readable. Those that were ignored stay
/// so: nohup means it. To be made before the command starts threads, which inherit what is held back.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int descriptor() const { return descriptor_; }

  /// Throws Interrupted if a signal has come.
  void check() const;

 private:
  int descriptor_ = -1;
  sigset_t before_{};
};

}  // namespace trireme::cli
