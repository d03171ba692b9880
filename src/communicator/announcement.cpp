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
Number whole(const nlohmann::json& value) {
  const auto number = value.is_number_integer() ? value.get<Number>() : Number{};
  if (nlohmann::json(number).dump() != value.dump()) {
    throw nlohmann::json::other_error::create(501, "a number is " + value.dump(), nullptr);
  }
  return number;
}

// Names of hosts and files may have any bytes.
std::string dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string Announcement::to_text() const {
  return dump({{"name", name},
               {"job", job},
               {"server", server},
               {"address", address},
               {"chosen", chosen},
               {"network", network},
               {"ways", ways},
               {"tuning", tuning},
               {"tuned", tuned},
               {"forced", forced},
               {"connections", connections}});
}

Announcement Announcement::parse(const std::string& text, int rank) {
  return read_of(text, rank, [](const nlohmann::json& json) {
    return Announcement{.name = json.at("name"),
                        .job = whole<std::uint64_t>(json.at("job")),
                        .server = json.at("server"),
                        .address = json.at("address"),
                        .chosen = json.at("chosen"),
                        .network = json.at("network"),
                        .ways = whole<int>(json.at("ways")),
                        .tuning = json.at("tuning"),
                        .tuned = json.at("tuned"),
                        .forced = json.at("forced"),
                        .connections = whole<int>(json.at("connections"))};
  });
}

std::string Surroundings::to_text() const { return dump({{"host", host}, {"machine", machine}, {"cores", cores}}); }

Surroundings Surroundings::parse(const std::string& text, int rank) {
  Surroundings found = read_of(text, rank, [](const nlohmann::json& json) {
    Surroundings around{.host = whole<int>(json.at("host")), .machine = json.at("machine"), .cores = {}};
    for (const nlohmann::json& core : json.at("cores")) around.cores.push_back(whole<int>(core));
    return around;
  });
  if (found.host < 0 || found.host > rank) {
    throw ProtocolError(fmt::format("rank {} says that it shares memory with rank {} first of all", rank, found.host));
  }
  return found;
}

}  // namespace trireme
