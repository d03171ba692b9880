// Strings of any length and any bytes between ranks: names, settings, small files. Tensors go faster by the
// communicator.
#pragma once

#include "trireme/communicator.h"

#include <string>
#include <vector>

namespace trireme {

/// The strings of all ranks, in the order of ranks. All ranks call it; the strings may be of different lengths.
std::vector<std::string> all_gather_object(Communicator& world, const std::string& mine);

/// Every rank's `object` ends as the root's.
void broadcast_object(Communicator& world, std::string& object, int root);

}  // namespace trireme
