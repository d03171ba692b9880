// Running other programs for what they print, and what benchmarks make of it.
#pragma once

#include <string>
#include <vector>

namespace trireme {

/// What a shell command prints. Throws SystemError if it can't be run.
std::string output_of(const std::string& command);

/// Debian's own Python is the one that its packages are for.
std::string python();

/// Variables for programs that compute with LibTorch, whoever's they are: one thread, and code that fits the processor.
/// OpenBLAS takes code for a Prescott of 2004 where it does not know a processor that is newer than itself.
std::string one_thread();

double median(std::vector<double> values);

}  // namespace trireme
