// Starts the ranks of a program, on this machine or on several, and stays their parent: passes on signals and output,
// and ends all of them when one fails.
#pragma once

#include "cli/hosts.h"
#include "rendezvous/interfaces.h"
#include "trireme/units.h"

#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

struct Launch {
  int ranks = 1;
  std::vector<std::string> command{};    ///< the program and its arguments
  std::vector<std::string> variables{};  ///< NAME=value, for all ranks
  bool prefix = true;                    ///< each line of output with its rank; otherwise ranks write where they like
  bool pin = true;                       ///< each rank to cores of its own, if there are enough
  Seconds grace{5};                      ///< from SIGTERM to SIGKILL
  std::optional<Seconds> timeout{};      ///< for the whole run
  bool encrypt = false;                  ///< what ranks say to each other over the network
  bool report = false;                   ///< on all ranks and who kept the others waiting, even if all is well
  std::string report_file{};             ///< where the report goes as JSON; "none"; empty: here, if the run fails

  std::vector<HostSlots> hosts{};    ///< with `ranks` slots together; none: this machine
  std::vector<std::string> agent{};  ///< what runs a command on a host, given the host and the command; empty: ssh
  std::string agent_program{};       ///< this program, as it is called on the hosts
  std::string interface {};          ///< which of this machine's addresses hosts may use; see choose_addresses()
  std::string address{};             ///< or the one that they have to
  rendezvous::Ports ports{};         ///< at which this program may listen
};

inline constexpr int kWrongUse = 2;
inline constexpr int kTimedOut = 124;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

/// Returns the exit status of the first rank that failed (128 + signal, if it was killed by one); 0 if none did;
/// kTimedOut, kNotExecutable or kNotFound; that of what should have reached a host. What went wrong is on stderr then.
/// Throws SystemError if the system lacks what so many ranks need.
int launch(const Launch& options);

}  // namespace trireme::cli
