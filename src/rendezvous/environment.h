// Which rank this process is, and where the others are to be met, as whoever started it says by environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme::rendezvous {

/// A process's place among the ranks.
struct Place {
  int rank = 0;
  int ranks = 1;
  std::string host;          ///< name or number of where the ranks meet
  std::uint16_t port = 0;    ///< and its port
  bool serve = false;        ///< this process has to run the Server there; see serve()
  std::string started_by{};  ///< for people: "trireme run", "RANK and MASTER_ADDR"
};

/// The value of an environment variable, if it is set.
using Lookup = std::function<std::optional<std::string>(const char*)>;

/// This process's own environment.
std::optional<std::string> environment_variable(const char* name);

/// Reads RANK and WORLD_SIZE, and either TRIREME_RENDEZVOUS (`trireme run` sets it, and serves) or MASTER_ADDR and
/// MASTER_PORT (as torchrun sets them; rank 0 serves). Throws UsageError that names the variable, if something is
/// missing or wrong, or says how to start a program, if nothing is set.
Place place_from_environment(const Lookup& lookup = environment_variable);

}  // namespace trireme::rendezvous
