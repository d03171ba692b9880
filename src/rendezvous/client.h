// One rank's end of the rendezvous.
//
// Failures poison the client: later calls throw the same error at once. One thread at a time may call it.
#pragma once

#include "base/guard.h"
#include "rendezvous/environment.h"
#include "rendezvous/socket.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::rendezvous {

/// The most bytes that a rank may send in one exchange.
inline constexpr std::size_t kMostBlobBytes = std::size_t{64} << 20;

using Deadline = std::chrono::steady_clock::time_point;

class Client {
 public:
  /// Connects to the server at place.host and place.port, which may start later, and says who this is. Throws
  /// TimeoutError if there is no server within `patience`; UsageError if it does not agree with `place` (another number
  /// of ranks, the rank is taken, another secret or none: both sides are named); ProtocolError if it is no server of
  /// this kind.
  Client(const Place& place, std::chrono::milliseconds patience, const Guard& guard = {});

  /// Asks whether it is this job's server that a connection leads to, and leaves again. Throws Error that says what is
  /// there instead.
  static void visit(Descriptor socket, const Guard& guard, Deadline deadline);

  /// Says goodbye.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Sends `mine` to all ranks and returns what each of them sent, in the order of ranks. All ranks have to call it
  /// equally often. Throws TimeoutError that names the ranks that are missing at the deadline; PeerError that names a
  /// rank that died or left, at once. All ranks are told of the same culprit.
  std::vector<std::string> exchange(std::string_view mine, Deadline deadline);

  /// With the job's secret, as far as it has one: it may have been in rank 0's notice.
  const Guard& guard() const;

  /// The number of this host's address on the way to the server: one at which others that reach the server may reach
  /// this rank. Loopback if the server is on this host and was named so.
  std::string local_address() const;

  /// The number of the server's address, as this rank sees it.
  std::string server_address() const;

 private:
  class Connection;
  std::unique_ptr<Connection> connection_;
};

}  // namespace trireme::rendezvous
