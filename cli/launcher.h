// Starts the ranks of a program on this machine, and stays their parent: passes on signals and output, and ends all of
// them when one fails.
#pragma once

#include "trireme/units.h"

#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

struct Launch {
  int ranks = 1;
  std::vector<std::string> command{};  ///< the program and its arguments
  bool prefix = true;                  ///< each line of output with its rank; otherwise ranks write where they like
  bool pin = true;                     ///< each rank to cores of its own, if there are enough
  Seconds grace{5};                    ///< from SIGTERM to SIGKILL
  std::optional<Seconds> timeout{};    ///< for the whole run
  bool encrypt = false;                ///< what ranks say to each other over the network
};

inline constexpr int kTimedOut = 124;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;

/// Returns the exit status of the first rank that failed (128 + signal, if it was killed by one); 0 if none did;
/// kTimedOut, kNotExecutable or kNotFound. What went wrong is on stderr then. Throws SystemError if the system lacks what
/// so many ranks need.
int launch(const Launch& options);

}  // namespace trireme::cli
