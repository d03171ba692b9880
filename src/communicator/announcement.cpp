#include "communicator/announcement.h"

#include "trireme/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

template <typename Read>
auto read_of(const std::string& text, int rank, const Read& read) {
  try {
    return read(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw ProtocolError(
        fmt::format("rank {} announced itself in a way that this build does not understand ({}): build all ranks' "
                    "programs with the same Trireme",
                    rank, error.what()));
  }
}

// Of fractions and of what is out of range, a conversion would make any number.
template <typename Number>
Number whole(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = json.at(key);
  const auto number = value.is_number_integer() ? value.get<Number>() : Number{};
  if (nlohmann::json(number) != value) {
    throw nlohmann::json::other_error::create(501, fmt::format("{} is {}", key, value.dump()), nullptr);
  }
  return number;
}

}  // namespace

std::string Announcement::to_text() const {
  return nlohmann::json{{"name", name},
                        {"job", job},
                        {"server", server},
                        {"address", address},
                        {"chosen", chosen},
                        {"network", network},
                        {"ways", ways},
                        {"tuning", tuning},
                        {"tuned", tuned},
                        {"forced", forced},
                        {"connections", connections}}
      .dump();
}

Announcement Announcement::parse(const std::string& text, int rank) {
  return read_of(text, rank, [](const nlohmann::json& json) {
    return Announcement{.name = json.at("name"),
                        .job = whole<std::uint64_t>(json, "job"),
                        .server = json.at("server"),
                        .address = json.at("address"),
                        .chosen = json.at("chosen"),
                        .network = json.at("network"),
                        .ways = whole<int>(json, "ways"),
                        .tuning = json.at("tuning"),
                        .tuned = json.at("tuned"),
                        .forced = json.at("forced"),
                        .connections = whole<int>(json, "connections")};
  });
}

std::string Surroundings::to_text() const {
  return nlohmann::json{{"host", host}, {"machine", machine}, {"cores", cores}}.dump();
}

Surroundings Surroundings::parse(const std::string& text, int rank) {
  Surroundings found = read_of(text, rank, [](const nlohmann::json& json) {
    return Surroundings{.host = whole<int>(json, "host"), .machine = json.at("machine"), .cores = json.at("cores")};
  });
  if (found.host < 0 || found.host > rank) {
    throw ProtocolError(fmt::format("rank {} says that it shares memory with rank {} first of all", rank, found.host));
  }
  return found;
}

}  // namespace trireme
