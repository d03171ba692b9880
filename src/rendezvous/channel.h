// One connection of the rendezvous, at either end: frames out, as far as the socket takes them, and bytes in, as they
// come. Nothing waits.
#pragma once

#include "base/tls.h"
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
  void close() {
    tls_.reset();
    socket_.close();
  }

  /// Encrypts all that comes after what was sent and received so far.
  void encrypt(Tls::Role role, const Digest& key);

  /// Where it encrypts: goes on with the exchange of keys; true once this end has finished it.
  bool shake() { return !tls_ || tls_->shake(); }

  /// Whether something has come that the socket does not show.
  bool unread() const { return tls_ && tls_->unread(); }

  /// Sends what the socket takes now; the rest waits for flush().
  void send(SharedBytes bytes);
  void send(std::string bytes) { send(std::make_shared<const std::string>(std::move(bytes))); }

  /// Sends more of what waits. A connection that has ended takes everything: it shows when it is read from.
  void flush();

  /// Whether something waits for the socket to become writable.
  bool pending() const { return !out_.empty() && !(tls_ && tls_->waits_to_read()); }

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
  ssize_t write(std::string_view bytes) const;

  Descriptor socket_;
  std::unique_ptr<Tls> tls_;
  std::deque<SharedBytes> out_;
  std::size_t sent_ = 0;  // of the first
  bool finished_ = false;
};

}  // namespace trireme::rendezvous
