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
  std::string started_by{};  ///< for people: "trireme run", "torchrun", "mpirun of Open MPI", "RANK and MASTER_ADDR"
  std::string notice{};      ///< the file in which rank 0 says at which port of `host`, which all share; see notice.h
};

/// The value of an environment variable, if it is set.
using Lookup = std::function<std::optional<std::string>(const char*)>;

/// This process's own environment.
std::optional<std::string> environment_variable(const char* name);

/// Whether something has started this process as a rank, be it in the right way or not.
bool started_as_rank(const Lookup& lookup = environment_variable);

/// The place that the process was started for:
///
/// - by `trireme run`: RANK, WORLD_SIZE and TRIREME_RENDEZVOUS; the launcher serves;
/// - by torchrun, or anything else that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: rank 0 serves there. Where
///   torchrun itself has that port, the ranks of one host meet by a notice, and those of several at the next port;
/// - by mpirun (Open MPI, MPICH) or srun: at MASTER_ADDR and MASTER_PORT if they are set; otherwise the ranks of one
///   host meet by a notice, and those of several that Slurm started at the first of these hosts.
///
/// Throws UsageError that names the variables if something is missing, wrong or contradicts itself, and one that says
/// how to start a program if nothing is set.
Place place_from_environment(const Lookup& lookup = environment_variable);

}  // namespace trireme::rendezvous
