// What a communicator says about itself: nothing, unless TRIREME_LOG asks for it.
#pragma once

#include <string>

namespace trireme {

enum class LogLevel : unsigned char { off, info, debug };

/// Writes lines to standard error, each with the rank. Threads may share it.
class Log {
 public:
  /// TRIREME_LOG: "info" or "debug"; not set: off. Throws UsageError for anything else.
  static LogLevel level_from_environment();

  Log(LogLevel level, int rank) : level_(level), rank_(rank) {}

  bool wants(LogLevel level) const { return level <= level_; }
  void say(LogLevel level, const std::string& text) const;

 private:
  LogLevel level_;
  int rank_;
};

}  // namespace trireme
