// Ranks that are threads of one process: everything they have is visible to all.
#pragma once

#include "transport/host.h"

#include <memory>

namespace trireme::transport {

/// The memory of all ranks. It goes when the last of the rank's memories does.
class Inproc {
 public:
  explicit Inproc(int ranks);

  /// For the transport of one rank; each rank is asked for once.
  std::unique_ptr<HostMemory> memory(int rank) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace trireme::transport
