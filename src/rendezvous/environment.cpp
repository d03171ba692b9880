#include "rendezvous/environment.h"

#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace trireme::rendezvous {
namespace {

constexpr int kMostRanks = 1'000'000;

constexpr const char* kHowToStart =
    "start it with 'trireme run -n 4 ./program', or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process";

std::string require(const Lookup& lookup, const char* name, std::string_view beside) {
  std::optional<std::string> value = lookup(name);
  if (value) return std::move(*value);
  throw UsageError(fmt::format("{} is set, but {} is not: {}", beside, name, kHowToStart));
}

// A whole number from `least` to `most`, or UsageError that says what else it may be.
int number(const char* name, const std::string& text, int least, int most, std::string_view advice) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && rest == end && value >= least && value <= most) return value;
  throw UsageError(fmt::format("{} is '{}': {}", name, text, advice));
}

Place read_ranks(const Lookup& lookup, std::string_view beside) {
  Place place;
  const std::string ranks = require(lookup, "WORLD_SIZE", beside);
  const std::string rank = require(lookup, "RANK", beside);
  place.ranks = number("WORLD_SIZE", ranks, 1, kMostRanks, "it has to be the number of ranks, 1 or more");
  place.rank = number("RANK", rank, 0, place.ranks - 1,
                      place.ranks == 1
                          ? "with WORLD_SIZE 1 it has to be 0"
                          : fmt::format("with WORLD_SIZE {} it has to be a number from 0 to {}, another one for each "
                                        "process",
                                        place.ranks, place.ranks - 1));
  return place;
}

// The first of the names that is set, for messages.
const char* first_set(const Lookup& lookup, const std::vector<const char*>& names) {
  for (const char* name : names) {
    if (lookup(name)) return name;
  }
  return nullptr;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
  if (value == nullptr) return std::nullopt;
  return value;
}

Place place_from_environment(const Lookup& lookup) {
  if (const auto meeting_point = lookup("TRIREME_RENDEZVOUS")) {
    Place place = read_ranks(lookup, "TRIREME_RENDEZVOUS");
    const auto address = parse_host_and_port(*meeting_point);
    if (!address) {
      throw UsageError(
          fmt::format("TRIREME_RENDEZVOUS is '{}': it has to be HOST:PORT or [IPv6]:PORT, with a port from 1 to 65535; "
                      "'trireme run' "
                      "sets it, and nothing else should",
                      *meeting_point));
    }
    place.host = address->host;
    place.port = address->port;
    place.started_by = "trireme run";
    return place;
  }
  const char* const any = first_set(lookup, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  if (any == nullptr) throw UsageError(fmt::format("this process was not started as a rank: {}", kHowToStart));
  Place place = read_ranks(lookup, any);
  place.host = require(lookup, "MASTER_ADDR", any);
  if (place.host.empty()) throw UsageError("MASTER_ADDR is empty: it has to be the host of rank 0, by name or number");
  place.port = static_cast<std::uint16_t>(
      number("MASTER_PORT", require(lookup, "MASTER_PORT", any), 1, 65535,
             "it has to be a port from 1 to 65535 that is free on the host of rank 0, the same for all ranks"));
  place.serve = place.rank == 0;
  place.started_by = "RANK and MASTER_ADDR";
  return place;
}

}  // namespace trireme::rendezvous
