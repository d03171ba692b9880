// Starting other programs as children that die with this one, and what a parent of many has to set up for itself.
#pragma once

#include "cli/interrupts.h"
#include "rendezvous/socket.h"

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

namespace trireme::cli {

using rendezvous::Descriptor;

/// "signal 9 (Killed)"
std::string name_of_signal(int signal);

/// Throws SystemError with errno's reason.
[[noreturn]] void fail_with_errno(const std::string& what);

/// The signals that a parent passes on, and those of children that end, come by a descriptor for as long as this lives.
/// Writing what nobody reads any more is an error then, and no signal.
class Signals {
 public:
  Signals();
  ~Signals() { restore(); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return held_->descriptor(); }

  /// As it was before; safe in a child.
  void restore() const;

 private:
  struct sigaction pipe_ {};
  std::optional<HeldSignals> held_;  // after what the constructor sets
};

/// The files of many ranks are more than the usual limit, which is for programs that can't count so far. They get
/// theirs back.
class FileLimit {
 public:
  FileLimit();
  ~FileLimit() { restore(); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

  /// As it was before; safe in a child.
  void restore() const { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

/// Closed on exec: an end that another child holds would hide that this one's other side is gone.
struct Pipe {
  Descriptor out;  ///< to read from
  Descriptor in;   ///< to write to
  Pipe();
};

/// What a child may have in place of a descriptor: this process's own, or /dev/null.
inline constexpr int kOwn = -1;
inline constexpr int kNull = -2;

struct Command {
  std::vector<std::string> words;        ///< the program and its arguments
  std::vector<std::string> variables{};  ///< NAME=value, in place of or besides those of this process; the last counts
  bool own_group = true;                 ///< in a process group of its own
  int death_signal = SIGKILL;            ///< that it gets should the thread that starts it die
  int input = kOwn;
  int output = kOwn;
  int error = kOwn;
};

struct Started {
  pid_t pid = -1;
  int error = 0;  ///< why the program could not be executed; its process ends then
};

/// Starts a program and waits until it is executed. `in_child` is called just before that, and may do only what is safe
/// in a child of a process with threads. Throws SystemError if there can't be one more process.
Started start(const Command& command, const std::function<void()>& in_child);

/// Why a program that was to be started is not, as "it can't be started: reason".
std::string explain_failed_start(const std::string& program, int error);

}  // namespace trireme::cli
