// How a rank comes to have a communicator.
#pragma once

#include "base/guard.h"
#include "communicator/board.h"
#include "transport/faulty.h"
#include "trireme/communicator.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

/// All ranks as one process's threads may use them, without any network: for tests, and for trying things out.
std::vector<Communicator> threads_world(int ranks, const InitOptions& options = {});

/// As init() does, with the exchange that rendezvous gives.
struct Joining {
  int rank = 0;
  int ranks = 1;
  std::string address = "127.0.0.1";  ///< of this rank, on its way to the rendezvous
  std::string server = address;       ///< of the rendezvous, as this rank reaches it
  std::function<std::vector<std::string>(const std::string& mine)> exchange;
  std::shared_ptr<Board> board = {};             ///< who started this host's ranks made; none: one of theirs
  Guard guard{};                                 ///< of its connections
  std::optional<transport::FaultPlan> faults{};  ///< what goes wrong with what this rank sends by TCP, for tests
};
Communicator join(const Joining& joining, const InitOptions& options);

}  // namespace trireme
