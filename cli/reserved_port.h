// A port for what programs do with MASTER_PORT. Bound but not listened at, it is nobody else's, and still free for a
// rank that listens there with SO_REUSEADDR, as servers do.
#pragma once

#include "cli/process.h"
#include "rendezvous/socket.h"

#include <cstdint>

namespace trireme::cli {

class ReservedPort {
 public:
  enum class Reach : std::uint8_t { loopback, everywhere };

  explicit ReservedPort(Reach reach) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    const rendezvous::Address address =
        rendezvous::resolve(reach == Reach::loopback ? "127.0.0.1" : "0.0.0.0", 0).front();
    if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
      fail_with_errno("no port");
    }
  }

  std::uint16_t number() const { return rendezvous::local_port(socket_); }

 private:
  Descriptor socket_;
};

}  // namespace trireme::cli
