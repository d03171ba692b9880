// What this machine calls itself.
#pragma once

#include <string>

namespace trireme {

/// For messages and reports; "unknown" if the system won't say. No address is ever taken from it.
std::string host_name();

}  // namespace trireme
