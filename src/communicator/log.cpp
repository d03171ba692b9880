#include "communicator/log.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace trireme {

LogLevel Log::level_from_environment() {
  const char* value = std::getenv("TRIREME_LOG");
  const std::string_view level = value == nullptr ? "" : value;
  if (level.empty() || level == "off") return LogLevel::off;
  if (level == "info") return LogLevel::info;
  if (level == "debug") return LogLevel::debug;
  throw UsageError(fmt::format("TRIREME_LOG is '{}'; it may be off, info or debug", level));
}

void Log::say(LogLevel level, const std::string& text) const {
  if (!wants(level)) return;
  const std::string line = fmt::format("trireme: rank {}: {}\n", rank_, text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace trireme
