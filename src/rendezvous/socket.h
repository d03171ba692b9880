// TCP sockets and addresses, as far as the rendezvous needs them: non-blocking, closed with their owner, not inherited.
#pragma once

#include "trireme/error.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace trireme::rendezvous {

using Clock = std::chrono::steady_clock;

/// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void close();

 private:
  int number_;
};

struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;
};

/// "host:1234", "127.0.0.1:1234", "[::1]:1234"; nothing if it is something else.
std::optional<HostAndPort> parse_host_and_port(std::string_view text);

/// The reverse: IPv6 numbers get their brackets.
std::string format_host_and_port(std::string_view host, std::uint16_t port);

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  int family() const { return storage.ss_family; }
};

/// The addresses that a name or number stands for. Empty `host`: all of this machine's own, to listen at. Throws
/// SystemError.
std::vector<Address> resolve(const std::string& host, std::uint16_t port);

/// Another program has the port.
class PortInUse : public SystemError {
 public:
  using SystemError::SystemError;
};

/// Listens at the first of the addresses that it can. Throws SystemError that says where and why it can't; PortInUse,
/// if that is why.
Descriptor listen_at(const std::string& host, std::uint16_t port);

/// Throws SystemError if there is no connection by the deadline.
Descriptor connect_to(const Address& address, Clock::time_point deadline);

/// For a connection: small messages leave at once, and it ends if the other host is cut off.
void prepare(const Descriptor& socket);

/// The numbers of a socket's two ends, without ports.
std::string local_number(const Descriptor& socket);
std::string peer_number(const Descriptor& socket);
std::uint16_t local_port(const Descriptor& socket);

/// Whether one of the poll events is there before the deadline.
bool wait_for(const Descriptor& socket, short events, Clock::time_point deadline);

/// Milliseconds to the deadline for poll(): rounded up, never negative.
int poll_time(Clock::time_point deadline);

/// "host:1234" with the number of this process: who it is, for messages.
std::string this_process();

}  // namespace trireme::rendezvous
