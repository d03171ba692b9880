#include "cli/hosts.h"

#include "cli/files.h"
#include "rendezvous/wire.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

namespace trireme::cli {
namespace {

std::optional<int> parse_slots(std::string_view text) {
  int slots = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc{} || rest != text.data() + text.size() || slots < 1 || slots > kMostRanks) return std::nullopt;
  return slots;
}

// Letters of any alphabet, digits, and the signs of names, addresses and users; no spaces and nothing that does not
// show.
bool is_of_a_host(char c) {
  return static_cast<unsigned char>(c) > ' ' && c != 0x7f && std::string_view("[],#").find(c) == std::string_view::npos;
}

// "a", "a:2", "[fd00::1]:2" or an IPv6 address alone; nothing if it is none of these.
std::optional<HostSlots> parse_host(std::string_view text) {
  std::string_view host = text;
  std::string_view slots = "1";
  const bool bracketed = text.starts_with('[') && text.find(']') != std::string_view::npos;
  const std::size_t colon = bracketed ? text.find(':', text.find(']')) : text.find(':');
  if (colon != std::string_view::npos && (bracketed || text.find(':', colon + 1) == std::string_view::npos)) {
    host = text.substr(0, colon);
    slots = text.substr(colon + 1);
  }
  if (bracketed) {
    if (!host.ends_with(']')) return std::nullopt;
    host = host.substr(1, host.size() - 2);
  }
  const auto count = parse_slots(slots);
  // One that begins with a dash would be an option to what is to reach it.
  if (host.empty() || host.front() == '-' || !std::all_of(host.begin(), host.end(), is_of_a_host) || !count) {
    return std::nullopt;
  }
  return HostSlots{std::string(host), *count};
}

bool is_among(const std::vector<HostSlots>& hosts, const std::string& host) {
  return std::any_of(hosts.begin(), hosts.end(), [&](const HostSlots& one) { return one.host == host; });
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const auto host = parse_host(word);
    if (word.empty()) {
      throw UsageError(
          fmt::format("run: --hosts '{}' names nothing between two commas, or at an end: leave that out", text));
    }
    if (!host) {
      throw UsageError(
          fmt::format("run: '{}' in --hosts is no host with a number of ranks: give HOST:RANKS, as in a:2,b:2",
                      rendezvous::printable(word)));
    }
    if (is_among(hosts, host->host)) {
      throw UsageError(fmt::format("run: --hosts names {} twice: give it once, with all of its ranks", host->host));
    }
    hosts.push_back(*host);
    begin = end + 1;
  }
  return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("run: the hostfile {}", error.what()));
  }
  return parse_hostfile(text, path);
}

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // as some editors begin a file, and nobody sees
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::istringstream file{std::string(text)};
  std::vector<HostSlots> hosts;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first;
    std::string slots;
    std::string more;
    if (!(words >> first)) continue;
    words >> slots >> more;
    const auto bad = [&](std::string_view why) {
      return UsageError(
          fmt::format("run: line {} of the hostfile {}, '{}', {}", number, path, rendezvous::printable(line), why));
    };
    auto host = parse_host(first);
    constexpr std::string_view kSlots = "slots=";
    if (host && !slots.empty()) {
      const auto count = slots.starts_with(kSlots) ? parse_slots(slots.substr(kSlots.size())) : std::nullopt;
      if (count) host->slots = *count;
      if (!count) host.reset();
    }
    if (!host || !more.empty()) throw bad("is not understood: it may be HOST, HOST:RANKS or HOST slots=RANKS");
    if (is_among(hosts, host->host)) throw bad("names a host for the second time: give it once, with all of its ranks");
    hosts.push_back(*host);
  }
  if (hosts.empty()) throw UsageError(fmt::format("run: the hostfile {} names no host", path));
  return hosts;
}

std::vector<HostSlots> fill_hosts(const std::vector<HostSlots>& hosts, int ranks) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots = std::min(slots + host.slots, kMostRanks + 1);
  if (ranks == 0) ranks = slots;
  if (ranks > slots) {
    throw UsageError(
        fmt::format("run: -n {} is more than the {} ranks that the hosts have room for: name more hosts, or "
                    "give some more, as in {}:{}",
                    ranks, slots, hosts.front().host, hosts.front().slots + ranks - slots));
  }
  std::vector<HostSlots> filled;
  for (const HostSlots& host : hosts) {
    if (ranks == 0) break;
    filled.push_back({host.host, std::min(host.slots, ranks)});
    ranks -= filled.back().slots;
  }
  return filled;
}

}  // namespace trireme::cli
