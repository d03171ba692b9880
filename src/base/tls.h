// TLS 1.3 over a connected socket that does not block, with a key that both ends have already: there are no
// certificates.
//
// A fresh exchange of keys goes into each connection, so that who learns the job's secret later can't read what was
// recorded before.
#pragma once

#include "base/secret.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/types.h>

namespace trireme {

class Tls {
 public:
  enum class Role : std::uint8_t { client, server };

  /// The socket has to live as long. Throws SystemError if OpenSSL can't do what is asked of it.
  Tls(int socket, Role role, const Digest& key);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// Takes all, or as many bytes as the socket does, and returns how many; -1: none, errno says why, and is EAGAIN
  /// where the same bytes have to be written again later. More may follow them then.
  ssize_t write(const void* data, std::size_t bytes);

  /// Reads all that is asked for or that there is, and returns how many bytes; 0: the other end has closed; -1: as
  /// above.
  ssize_t read(void* data, std::size_t bytes);

  /// Whether the last write waits for something to be read first, and not for room.
  bool waits_to_read() const;

  /// Whether there is something to read that the socket does not show any more.
  bool unread() const;

  /// Goes on with the exchange of keys; true once this end has finished it. Throws PeerError if it failed.
  bool shake();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
