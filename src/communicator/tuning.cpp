#include "communicator/tuning.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace trireme {
namespace {

nlohmann::json to_json(const Link& link) {
  return {
      {"alpha_us", link.alpha.count() * 1e6}, {"bandwidth_bytes_per_s", link.bandwidth}, {"burst_bytes", link.burst}};
}

double positive(const nlohmann::json& object, const char* name, const std::string& source) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number() || !(found->get<double>() > 0)) {
    throw UsageError(fmt::format("{}: '{}' must be a number above 0; remove it, and run 'trireme tune'", source, name));
  }
  return found->get<double>();
}

Link parse_link(const nlohmann::json& object, const char* name, const std::string& source) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_object()) {
    throw UsageError(fmt::format("{}: there is no '{}'; remove it, and run 'trireme tune'", source, name));
  }
  Link link{.alpha = Seconds(positive(*found, "alpha_us", source) * 1e-6),
            .bandwidth = positive(*found, "bandwidth_bytes_per_s", source)};
  // 0 is as good as none, which is what older files have.
  if (found->value("burst_bytes", nlohmann::json(0)) != 0) link.burst = positive(*found, "burst_bytes", source);
  return link;
}

}  // namespace

Tuning Tuning::guess() {
  // A 10 Gbit/s Ethernet, and memory of a common server.
  return {.between = {.alpha = Seconds(30e-6), .bandwidth = 1.2e9},
          .inside = {.alpha = Seconds(0.5e-6), .bandwidth = 8e9},
          .reduce_rate = 6e9,
          .message = Seconds(3e-6)};
}

std::string Tuning::to_json() const {
  const nlohmann::json json = {{"between_hosts", trireme::to_json(between)},
                               {"inside_host", trireme::to_json(inside)},
                               {"reduce_bytes_per_s", reduce_rate},
                               {"message_us", message.count() * 1e6}};
  return json.dump(2) + "\n";
}

Tuning Tuning::parse(const std::string& json, const std::string& source) {
  const nlohmann::json object = nlohmann::json::parse(json, nullptr, false);
  if (!object.is_object())
    throw UsageError(fmt::format("{}: not a tuning file; remove it, and run 'trireme tune'", source));
  return {.between = parse_link(object, "between_hosts", source),
          .inside = parse_link(object, "inside_host", source),
          .reduce_rate = positive(object, "reduce_bytes_per_s", source),
          .message = Seconds(positive(object, "message_us", source) * 1e-6),
          .source = source};
}

std::filesystem::path Tuning::file() {
  const char* path = std::getenv("TRIREME_TUNING");
  return path != nullptr && *path != '\0' ? path : default_file();
}

std::filesystem::path Tuning::default_file() {
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder != '\0') {
    return std::filesystem::path(folder) / "trireme" / "tuning.json";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "/") / ".config" / "trireme" / "tuning.json";
}

Tuning Tuning::load() {
  const std::filesystem::path path = file();
  const std::ifstream stream(path);
  if (!stream) {
    const int error = errno;
    if (path != default_file()) {
      throw UsageError(
          fmt::format("TRIREME_TUNING names {}, which can't be read: {}; 'trireme tune' writes such a file",
                      path.string(), std::strerror(error)));
    }
    return guess();
  }
  std::ostringstream text;
  text << stream.rdbuf();
  return parse(text.str(), path.string());
}

}  // namespace trireme
