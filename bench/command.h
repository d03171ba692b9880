// Running other programs for what they print.
#pragma once

#include <string>

namespace trireme {

/// What a shell command prints. Throws SystemError if it can't be run.
std::string output_of(const std::string& command);

}  // namespace trireme
