// Apart from socket.cpp: the header that knows of the least round trip can't be included beside <netinet/tcp.h>.
#include "transport/socket.h"

#include <cstdint>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace trireme::transport {

bool keep_queues_short(const Descriptor& connected) {
  constexpr std::uint32_t kNearMicroseconds = 500;  // Beyond it, so few bytes would be too slow for fast networks.
  constexpr int kBytes = 256 << 10;  // The system doubles it for its own records, and may have set a limit below it.
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(connected.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  if (info.tcpi_min_rtt == 0 || info.tcpi_min_rtt > kNearMicroseconds) return false;  // 0: this system does not know
  ::setsockopt(connected.get(), SOL_SOCKET, SO_SNDBUF, &kBytes, sizeof kBytes);
  return true;
}

}  // namespace trireme::transport
