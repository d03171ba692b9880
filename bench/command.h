// Running other programs for what they print, and what benchmarks make of it.
#pragma once

#include <string>
#include <vector>

namespace trireme {

/// What a shell command prints. Throws SystemError if it can't be run.
std::string output_of(const std::string& command);

/// Debian's own Python is the one that its packages are for.
std::string python();

double median(std::vector<double> values);

}  // namespace trireme
