// One connection of the rendezvous, at either end: frames out, as far as the socket takes them, and bytes in, as they
// come. Nothing waits.
#pragma once

#include "rendezvous/socket.h"
#include "rendezvous/wire.h"

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme::rendezvous {

/// Bytes that may go to many at once.
using SharedBytes = std::shared_ptr<const std::string>;

class Channel {
 public:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

  const Descriptor& socket() const { return socket_; }
  bool open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }

  /// Sends what the socket takes now; the rest waits for flush().
  void send(SharedBytes bytes);
  void send(std::string bytes) { send(std::make_shared<const std::string>(std::move(bytes))); }

  /// Sends more of what waits. A connection that has ended takes everything: it shows when it is read from.
  void flush();

  /// Whether something waits for the socket to become writable.
  bool pending() const { return !out_.empty(); }

  /// Says that nothing more will be sent, so that the other side can hang up without losing anything.
  void finish();

  struct Arrived {
    std::string_view bytes;  ///< in the buffer
    bool ended = false;
    std::string why{};  ///< it ended, if not in the orderly way
  };
  /// What has arrived, as much as the buffer holds.
  Arrived receive(std::span<char> buffer) const;

  /// Puts frames together from what has arrived.
  FrameReader reader;

 private:
  Descriptor socket_;
  std::deque<SharedBytes> out_;
  std::size_t sent_ = 0;  // of the first
  bool finished_ = false;
};

}  // namespace trireme::rendezvous
