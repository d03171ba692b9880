// Any text is a list of hosts or a UsageError that names the line; and the list, written down again, gives the same.
#include "cli/hosts.h"
#include "require.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::cli {
namespace {

bool same(const HostSlots& a, const HostSlots& b) { return a.host == b.host && a.slots == b.slots; }

void check(const std::vector<HostSlots>& hosts) {
  std::string lines;
  std::string words;
  for (const HostSlots& host : hosts) {
    require(host.slots >= 1 && host.slots <= kMostRanks);
    lines += fmt::format("[{}] slots={}\n", host.host, host.slots);
    words += fmt::format("{}[{}]:{}", words.empty() ? "" : ",", host.host, host.slots);
  }
  for (const auto& again : {parse_hostfile(lines, "again"), parse_hosts(words)}) {
    require(std::equal(hosts.begin(), hosts.end(), again.begin(), again.end(), same));
  }
  for (const int ranks : {0, 1, 7}) {
    try {
      int filled = 0;
      for (const HostSlots& host : fill_hosts(hosts, ranks)) filled += host.slots;
      require(ranks == 0 ? filled >= 1 : filled == ranks);
    } catch (const UsageError& error) {
      require(ranks > 1 && std::string_view(error.what()).find("-n 7") != std::string_view::npos);
    }
  }
}

void run(std::string_view text) {
  try {
    check(parse_hostfile(text, "fuzz"));
  } catch (const UsageError& error) {
    const std::string_view what = error.what();
    require(what.find("line ") != std::string_view::npos || what.find("names no host") != std::string_view::npos);
  }
  try {
    check(parse_hosts(text));
  } catch (const UsageError& error) {
    require(std::string_view(error.what()).find("--hosts") != std::string_view::npos);
  }
}

}  // namespace
}  // namespace trireme::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::cli::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
