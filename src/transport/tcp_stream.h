// The bytes of a connection, as they are or through TLS.
#pragma once

#include "base/tls.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/socket.h>
#include <sys/uio.h>

namespace trireme::transport {

class TcpStream {
 public:
  TcpStream(int fd, Tls* tls = nullptr) : fd_(fd), tls_(tls) {}  // NOLINT: a descriptor is a stream

  /// How many bytes the kernel took; -1: errno says why none.
  ssize_t send(std::span<iovec> parts) const {
    if (tls_ != nullptr) return send_encrypted(parts);
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    ssize_t sent = 0;
    do sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
  }

  /// How many bytes came; 0: no more ever will; -1: errno says why none. Fewer than asked for are all there are.
  ssize_t receive(std::span<iovec> parts) const {
    if (tls_ != nullptr) return receive_encrypted(parts);
    if (parts.size() == 1) return ::recv(fd_, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    return ::readv(fd_, parts.data(), static_cast<int>(parts.size()));
  }

  /// Whether something has come that the descriptor does not show.
  bool unread() const { return tls_ != nullptr && tls_->unread(); }

 private:
  // A record is as long as TLS allows, whatever parts it comes from.
  ssize_t send_encrypted(std::span<const iovec> parts) const {
    std::array<char, std::size_t{16} << 10> record;
    std::size_t filled = 0;
    ssize_t total = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto* data = static_cast<const char*>(parts[i].iov_base);
      for (std::size_t left = parts[i].iov_len; left > 0;) {
        const std::size_t count = std::min(left, record.size() - filled);
        std::memcpy(record.data() + filled, data, count);
        data += count;
        left -= count;
        filled += count;
        const bool last = left == 0 && i + 1 == parts.size();
        if (filled < record.size() && !last) continue;
        const ssize_t sent = tls_->write(record.data(), filled);
        if (sent < 0) return total > 0 ? total : sent;
        total += sent;
        if (static_cast<std::size_t>(sent) < filled) return total;
        filled = 0;
      }
    }
    return total;
  }

  ssize_t receive_encrypted(std::span<const iovec> parts) const {
    ssize_t total = 0;
    for (const iovec& part : parts) {
      if (part.iov_len == 0) continue;
      const ssize_t came = tls_->read(part.iov_base, part.iov_len);
      if (came <= 0) return total > 0 ? total : came;
      total += came;
      if (static_cast<std::size_t>(came) < part.iov_len) break;
    }
    return total;
  }

  int fd_;
  Tls* tls_;
};

}  // namespace trireme::transport
