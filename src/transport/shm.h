// Ranks that are processes of one host: each has one stretch of anonymous shared memory (a memfd) that the others map.
//
// It is handed over on a socket in the abstract namespace, so that nothing has a name in any file system, and nothing
// is left behind however a rank ends. Who is on the host is found by doing it: a rank is a peer if this rank finds, in
// the memory that it was handed, the number that the other announced, and the other finds this rank's in its own.
#pragma once

#include "transport/host.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::transport {

/// Tells every rank something, and hears what each has to tell; called by all ranks alike.
using Exchange = std::function<std::vector<std::string>(const std::string& mine)>;

/// Finds the ranks on this host, and shares memory with them. `exchange` is called twice. `gift` is a descriptor of
/// whatever file the caller likes: the others get that of the first rank. Ranks that have not handed over their memory
/// within `patience`, all together, are not found: they were stopped, and no later exchange will do without them. Throws
/// ProtocolError if another rank announces something else.
std::unique_ptr<HostMemory> make_shm(int rank, int ranks, const Exchange& exchange, int gift = -1,
                                     std::chrono::milliseconds patience = std::chrono::seconds(20));

}  // namespace trireme::transport
