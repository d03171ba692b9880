// Which hosts to run ranks on, and how many on each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

/// Of one launcher.
inline constexpr int kMostRanks = 10'000;

struct HostSlots {
  std::string host;
  int slots = 1;
};

/// Reads "a:2,b:2,[fd00::1]:4"; without a number it is 1. Throws UsageError.
std::vector<HostSlots> parse_hosts(std::string_view text);

/// Reads a text with a host a line: "a", "a:2" or "a slots=2"; what follows a # is a comment. Throws UsageError that
/// names the line, and the file as `path`.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& path);
std::vector<HostSlots> read_hostfile(const std::string& path);

/// The first `ranks` slots; all, if it is 0. Throws UsageError if there are fewer.
std::vector<HostSlots> fill_hosts(const std::vector<HostSlots>& hosts, int ranks);

}  // namespace trireme::cli
