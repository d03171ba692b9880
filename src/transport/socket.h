// Sockets: descriptors that close themselves, numeric addresses, and an epoll set.
#pragma once

#include "trireme/error.h"

#include <cstdint>
#include <span>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

namespace trireme::transport {

/// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    other.reset();
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// An IPv4 or IPv6 address and a port.
class Address {
 public:
  Address() = default;

  /// Reads "host:port" or "[host]:port", where host is numeric. Throws UsageError.
  static Address parse(const std::string& text);

  /// Reads a numeric host. Throws UsageError.
  static Address parse(const std::string& host, int port);

  /// Where this end of a socket is.
  static Address of(const Descriptor& socket);

  std::string text() const;

  /// Whether the ports alone may differ.
  bool same_host(const Address& other) const;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t bytes() const { return bytes_; }
  int family() const { return storage_.ss_family; }

 private:
  friend Descriptor accept_connection(const Descriptor& listener);
  friend Descriptor listen_at(const Address& address);

  int port() const;
  Address with_port(int port) const;
  friend std::string peer_text(const Descriptor& socket);

  sockaddr_storage storage_{};
  socklen_t bytes_ = 0;
};

/// What the system's error number means, in words; that of Tls for what can't be decrypted, too.
std::string reason(int error);

/// Ports from `first` to `last`; the system's own choice, if both are 0. Aligned so that every compiler loads it at
/// once.
struct alignas(8) PortRange {
  int first = 0;
  int last = 0;
};

/// The ports that listen_at() takes from now on in this process where the address has none. It is for the whole
/// process, as the rules of a firewall are.
void allow_ports(PortRange ports);

/// A socket that listens there; port 0 stands for any that is free. Throws SystemError.
Descriptor listen_at(const Address& address);

/// A socket whose connection is under way; none: it could not begin, and errno says why.
Descriptor begin_connection(const Address& address);

/// The next connection of a listening socket; none: errno says why.
Descriptor accept_connection(const Descriptor& listener);

/// Lets only so much of a connection be on its way at once as a near host needs at most. Else many that send to one fill
/// the queue before it, each as far as it can: some of it is lost, and some of them wait for the others. False if the
/// other end seems to be far away, and the system's own measure stays: it may be near after all, behind such a queue.
bool keep_queues_short(const Descriptor& connected);

/// Where the other end of a connection is, for people.
std::string peer_text(const Descriptor& socket);

/// Which descriptors are ready. All are watched level-triggered.
class Poller {
 public:
  Poller();

  /// `tag` comes with the events. Throws SystemError.
  void add(int fd, std::uint32_t events, std::uint64_t tag);
  void change(int fd, std::uint32_t events, std::uint64_t tag);
  void remove(int fd);

  /// Those that are ready, in `events`: now, or within so many milliseconds.
  std::span<const epoll_event> ready(std::span<epoll_event> events, int milliseconds = 0) const;

  int descriptor() const { return epoll_.get(); }

 private:
  Descriptor epoll_;
};

}  // namespace trireme::transport
