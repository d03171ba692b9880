// The port that a rank listens on, and who has come there but not yet proved who it is.
//
// A guest that says anything but a hello of this job, to this rank, is a stranger: it is dropped and counted. So is one
// that can't prove the job's secret, one that takes too long, and the one that has waited longest when there are too
// many. None of them holds up anything. Who is of Trireme, but can't talk to this rank, is told so.
#pragma once

#include "base/guard.h"
#include "transport/socket.h"
#include "transport/tcp_handshake.h"
#include "transport/wire.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace trireme::transport {

/// A peer that has dialled, and proved that it is one.
struct TcpGuest {
  Descriptor socket;
  Transcript transcript;
};

class TcpDoor {
 public:
  using Enter = std::function<void(TcpGuest)>;

  /// `expected` is the hello of any rank that is welcome, but for its rank, its nonce and its connection's number.
  TcpDoor(const Address& address, const wire::Hello& expected, const Guard& guard);

  const Address& address() const { return address_; }
  bool has_guests() const { return !guests_.empty(); }
  int strangers() const { return doorman_.count(); }

  /// Counts one that said all that it should, but was not welcome.
  void turn_away(const std::string& why) { doorman_.turn_away(why); }

  /// What becomes readable when look() has something to do, but for who takes too long.
  int descriptor() const { return poller_.descriptor(); }

  /// Lets those in who have come, hears what they say, and drops those that have taken too long. False if there was
  /// nothing to do.
  bool look(const Enter& enter);

  /// Drops those alone.
  bool expire();

  using Clock = std::chrono::steady_clock;

  /// When the next of those who are here will have; never, if there are none.
  Clock::time_point next_expiry() const;

 private:
  struct Guest {
    Descriptor socket;
    Clock::time_point since;
    std::array<std::byte, sizeof(wire::Hello)> said{};
    std::size_t bytes = 0;
    bool challenged = false;  // it has said a right hello, and has yet to prove it
    Transcript transcript{};
  };
  using Guests = std::map<std::uint64_t, Guest>;  // by the poller's tag, so the longest here come first

  bool let_in(const Enter& enter);
  bool turn_one_away();
  void make_room();
  void listen_to(Guests::iterator guest, const Enter& enter);
  void hear_hello(Guests::iterator guest, const wire::Hello& hello, const Enter& enter);
  void hear_proof(Guests::iterator guest, const wire::Hello& proof, const Enter& enter);
  void admit(Guests::iterator guest, const Enter& enter);
  void refuse(Guests::iterator guest, const wire::Hello& said, const std::string& why);
  void drop(Guests::iterator guest, const std::string& why);
  bool is_of_this_job(const wire::Hello& hello) const;

  wire::Hello expected_;
  const Guard guard_;
  Poller poller_;
  std::size_t most_guests_;  // more at once are no ranks: those that have been here longest are dropped
  std::uint64_t next_tag_;
  Descriptor listener_;
  Address address_;
  Descriptor reserve_;  // given up for a moment when there are no descriptors left
  Guests guests_;
  Doorman doorman_;
};

}  // namespace trireme::transport
