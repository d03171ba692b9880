// Messages over TCP.
//
// A rank listens on a port that the system gives, and somebody else tells its peers where. A connection to a peer is
// made when the first message to it is posted, without waiting: what is posted meanwhile goes out once it is up, for
// which the peer must make progress too. A peer that never exchanged a message is not known, and so not missed either.
// Pieces go from their own memory to the kernel, and come from it into their place or into a buffer that is reused;
// a small message costs one system call at each end.
//
// The inbox is never called from within one of its own calls: what happens meanwhile is told when that has returned.
// When it hears that a peer is lost, or when close() returns, the transport has let go of all messages posted to that
// peer, sent or not, and of all memory to place messages from it. A message posted to a lost peer is forgotten at once.
// A peer that closed is not lost, unless there is something left to send to it.
#pragma once

#include "base/guard.h"
#include "transport/transport.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::transport {

/// What a TCP transport has seen so far.
struct TcpCounts {
  int dialled = 0;    ///< connections begun from here
  int accepted = 0;   ///< connections from peers of this job
  int strangers = 0;  ///< connections dropped, since who made them did not prove to be a peer
};

class Tcp final : public Network {
 public:
  static constexpr int kMostConnections = 64;  ///< of a pair of ranks

  /// Listens on `bind_address`, a numeric IPv4 or IPv6 address, for ranks of the same `job`. A pair of ranks has up to
  /// `connections`; a message takes the one that its segment says. All ranks must agree on it, and have the same secret
  /// in their `guard`: who can't prove that it has it is neither let in nor talked to.
  Tcp(int rank, int ranks, Inbox& inbox, const std::string& bind_address, std::uint64_t job, int connections = 1,
      const Guard& guard = {});

  /// Without close(), peers are told that this rank is lost.
  ~Tcp() override;
  Tcp(const Tcp&) = delete;
  Tcp& operator=(const Tcp&) = delete;

  /// Where peers find this rank: "host:port", or "[host]:port" for IPv6.
  std::string address() const;

  /// Says where all ranks are; the own entry is not read, and an empty one is a rank that TCP does not reach. Throws
  /// ProtocolError that names a rank whose entry is no address.
  void meet(const std::vector<std::string>& addresses);

  void watch(int fd) override;

  TcpCounts counts() const;

  void post(Outgoing& outgoing) override;
  bool progress() override;

  bool wait(std::chrono::milliseconds most) override;

  int descriptor() const override;

  int door() const override;
  Greeted greet() override;
  bool has_guests() const override;

  /// Sends what is queued and a goodbye, which takes two seconds at most, without calls to the inbox.
  void close() override { close_within(std::chrono::seconds(2)); }
  void close_within(std::chrono::milliseconds patience) override;

  bool is_connected(int peer) const override;

  /// How long a host that is cut off may be silent before its ranks are lost.
  static constexpr std::chrono::seconds kLiveness{8};

  /// Those that have not acknowledged anything for that long. A rank that is only stopped or busy is not lost: its
  /// system answers for it.
  void check_links() override;

  void cut() override;

 protected:
  void release(Incoming& incoming) override;
  void answer(Incoming& incoming) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::transport
