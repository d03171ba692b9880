// What keeps strangers out, as whoever started this process says by environment variables.
#pragma once

#include "base/guard.h"
#include "rendezvous/environment.h"

#include <string>
#include <vector>

namespace trireme::rendezvous {

/// Reads TRIREME_SECRET or TRIREME_SECRET_FILE (a file that only its owner may read), and TRIREME_ENCRYPT (0 or 1).
/// Throws UsageError that names the variable and says what would do.
Guard guard_from_environment(const Lookup& lookup = environment_variable);

/// The same for a rank, which may yet find a secret where ranks meet.
Guard guard_at(const Place& place, const Lookup& lookup = environment_variable);

/// The same for one who starts ranks: makes a secret, if there is none.
Guard guard_for_ranks(const Lookup& lookup = environment_variable);

/// What its ranks need of it beside the variables that they inherit, as "NAME=value". Not for a command line, which
/// everybody on the machine can read.
std::vector<std::string> variables_for_ranks(const Guard& guard, const Lookup& lookup = environment_variable);

}  // namespace trireme::rendezvous
