// The port that a rank listens on, and who has come there but not yet said who it is.
//
// A guest that says anything but a hello of this job, to this rank, is a stranger: it is dropped and counted. So is one
// that takes too long, and the one that has waited longest when there are too many. None of them holds up anything.
#pragma once

#include "transport/socket.h"
#include "transport/wire.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

namespace trireme::transport {

class TcpDoor {
 public:
  /// A peer's hello, checked, and its connection.
  using Enter = std::function<void(Descriptor, const wire::Hello&)>;

  /// `expected` is the hello of any rank that is welcome, but for its rank and its connection's number. Descriptors are
  /// watched by `poller`, with tags from `tags` on: the listener's is the first, and guests have those behind it.
  TcpDoor(const Address& address, const wire::Hello& expected, Poller& poller, std::uint64_t tags);

  const Address& address() const { return address_; }
  bool has_guests() const { return !guests_.empty(); }
  int strangers() const { return strangers_; }

  /// Counts one that said a right hello, but was not welcome.
  void count_stranger() { ++strangers_; }

  /// Something happened at the descriptor with this tag.
  void look(std::uint64_t tag, const Enter& enter);

  /// Drops guests that have taken too long.
  void expire();

 private:
  using Clock = std::chrono::steady_clock;

  struct Guest {
    Descriptor socket;
    Clock::time_point since;
    std::array<std::byte, sizeof(wire::Hello)> said{};
    std::size_t bytes = 0;
  };
  using Guests = std::map<std::uint64_t, Guest>;  // by tag, so the longest here come first

  void let_in(const Enter& enter);
  void turn_one_away();
  void listen_to(Guests::iterator guest, const Enter& enter);
  void drop(Guests::iterator guest);
  bool welcome(const Guest& guest) const;

  wire::Hello expected_;
  Poller& poller_;
  std::uint64_t tags_;
  std::size_t most_guests_;  // more at once are no ranks: those that have been here longest are dropped
  std::uint64_t next_tag_;
  Descriptor listener_;
  Address address_;
  Descriptor reserve_;  // given up for a moment when there are no descriptors left
  Guests guests_;
  int strangers_ = 0;
};

}  // namespace trireme::transport
