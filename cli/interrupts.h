// Signals as something to wait for: Ctrl-C and its like, so that a command can end what it has started before it goes.
#pragma once

#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <csignal>
#include <initializer_list>

namespace trireme::cli {

/// While it lives, these signals do nothing but make descriptor() readable, which never waits. Those that were ignored
/// stay so: nohup means it. To be made before threads are started, which inherit what is held back.
class HeldSignals {
 public:
  HeldSignals(std::initializer_list<int> signals);
  ~HeldSignals() { restore(); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  int descriptor() const { return descriptor_.get(); }

  /// What is held back is so no more than before; safe in a child.
  void restore() const { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
  rendezvous::Descriptor descriptor_;
};

/// The user, or the system, wants the command to end.
class Interrupted : public Error {
 public:
  explicit Interrupted(int signal_number);

  /// What a shell expects of who was ended by that signal.
  int exit_status() const { return 128 + signal_; }

 private:
  int signal_;
};

/// While it lives, SIGINT, SIGTERM and SIGHUP end nothing. To be made before the command starts threads.
class Interrupts {
 public:
  /// Readable once a signal has come.
  int descriptor() const { return held_.descriptor(); }

  /// Throws Interrupted if a signal has come.
  void check() const;

 private:
  HeldSignals held_{SIGINT, SIGTERM, SIGHUP};
};

}  // namespace trireme::cli
