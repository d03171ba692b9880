#include "transport/socket.h"

#include "base/keep_alive.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace trireme::transport {

namespace {

// As many as the kernel allows: all ranks of a job may dial one of them at once.
constexpr int kBacklog = 4096;

[[noreturn]] void fail(const std::string& what) { throw SystemError(fmt::format("{}: {}", what, reason(errno))); }

std::atomic<PortRange> allowed_ports{};

// By descriptor: a socket that processes which this one forks are not to keep. If they did, nobody would notice that the
// rank has died as long as they live.
std::array<std::atomic<bool>, 1 << 16> is_own{};

void close_in_child() {
  for (std::size_t fd = 0; fd < is_own.size(); ++fd) {
    if (is_own[fd].exchange(false, std::memory_order_relaxed)) ::close(static_cast<int>(fd));
  }
}

void keep_from_children(const Descriptor& socket) {
  [[maybe_unused]] static const int kRegistered = ::pthread_atfork(nullptr, nullptr, close_in_child);
  const auto fd = static_cast<std::size_t>(socket.get());
  if (fd < is_own.size()) is_own[fd] = true;
}

// None: errno says why.
Descriptor try_to_listen(const Address& address) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // A fixed port may still have connections of somebody who has ended.
  const int yes = 1;
  if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!socket || ::bind(socket.get(), address.get(), address.bytes()) != 0 || ::listen(socket.get(), kBacklog) != 0) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  if (socket) keep_from_children(socket);
  return socket;
}

// For a connection between two addresses.
void prepare(const Descriptor& socket, const Address& here, const Address& there) {
  // Small messages leave at once instead of waiting for more.
  const int yes = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  keep_alive(socket.get());
  // Inside a host nothing is lost, and pacing only costs time: with BBR, bulk both ways takes 1.3 times as long.
  // Between hosts it is the system's choice.
  constexpr std::string_view kPlain = "reno";  // which every kernel has, and everybody may choose
  if (!here.same_host(there)) return;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, kPlain.data(), static_cast<socklen_t>(kPlain.size()));
}

}  // namespace

void Descriptor::reset() {
  if (fd_ < 0) return;
  if (static_cast<std::size_t>(fd_) < is_own.size()) is_own[fd_] = false;
  ::close(std::exchange(fd_, -1));
}

std::string reason(int error) {
  // No socket says this by itself: it comes from Tls.
  if (error == EBADMSG) return "sent bytes that were not encrypted with this connection's key";
  return std::generic_category().message(error);
}

Address Address::parse(const std::string& text) {
  const auto colon = text.rfind(':');
  const bool bracketed = text.starts_with('[') && colon != std::string::npos && colon > 2 && text[colon - 1] == ']';
  const std::string host = bracketed ? text.substr(1, colon - 2) : text.substr(0, colon);
  int port = 0;
  bool good = colon != std::string::npos && (bracketed || host.find(':') == std::string::npos);
  if (good) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
    good = error == std::errc() && stop == end && port > 0 && port <= 65535;
  }
  if (!good) throw UsageError(fmt::format("\"{}\" is not an address: give host:port or [host]:port", text));
  return parse(host, port);
}

Address Address::parse(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    throw UsageError(fmt::format("\"{}\" is not a numeric IPv4 or IPv6 address", host));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Address address;
  std::memcpy(&address.storage_, found->ai_addr, found->ai_addrlen);
  address.bytes_ = found->ai_addrlen;
  return address;
}

Address Address::of(const Descriptor& socket) {
  Address address;
  address.bytes_ = sizeof address.storage_;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage_), &address.bytes_) != 0) {
    fail("Could not find out a socket's address");
  }
  return address;
}

std::string Address::text() const {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(get(), bytes_, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return fmt::format(fmt::runtime(family() == AF_INET6 ? "[{}]:{}" : "{}:{}"), host.data(), port.data());
}

bool Address::same_host(const Address& other) const {
  if (family() != other.family()) return false;
  const bool six = family() == AF_INET6;
  const std::size_t offset = six ? offsetof(sockaddr_in6, sin6_addr) : offsetof(sockaddr_in, sin_addr);
  const auto host = [offset](const Address& address) { return reinterpret_cast<const char*>(address.get()) + offset; };
  return std::memcmp(host(*this), host(other), six ? sizeof(in6_addr) : sizeof(in_addr)) == 0;
}

int Address::port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

Address Address::with_port(int port) const {
  Address other = *this;
  const in_port_t number = htons(static_cast<std::uint16_t>(port));
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6&>(other.storage_).sin6_port = number;
  if (family() == AF_INET) reinterpret_cast<sockaddr_in&>(other.storage_).sin_port = number;
  return other;
}

void allow_ports(PortRange ports) { allowed_ports = ports; }

Descriptor listen_at(const Address& address) {
  const PortRange ports = allowed_ports;
  if (address.port() != 0 || ports.first == 0) {
    Descriptor socket = try_to_listen(address);
    if (!socket) fail("Could not listen at " + address.text());
    return socket;
  }
  // The ranks of a host begin at different ones.
  const int count = ports.last - ports.first + 1;
  for (int i = 0; i < count; ++i) {
    Descriptor socket = try_to_listen(address.with_port(ports.first + (::getpid() + i) % count));
    if (socket) return socket;
    if (errno != EADDRINUSE) fail("Could not listen at " + address.text());
  }
  throw SystemError(
      fmt::format("all ports from {} to {} are in use here, by ranks of this job or by others: allow more (--ports or "
                  "TRIREME_PORTS), one for each rank of a host and one for the launcher",
                  ports.first, ports.last));
}

Descriptor begin_connection(const Address& address) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  if (::connect(socket.get(), address.get(), address.bytes()) != 0 && errno != EINPROGRESS && errno != EINTR) {
    const int error = errno;
    socket.reset();
    errno = error;
    return socket;
  }
  prepare(socket, Address::of(socket), address);
  keep_from_children(socket);
  return socket;
}

Descriptor accept_connection(const Descriptor& listener) {
  Address from;
  from.bytes_ = sizeof from.storage_;
  Descriptor socket(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&from.storage_), &from.bytes_,
                              SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return socket;
  prepare(socket, Address::of(socket), from);
  keep_from_children(socket);
  return socket;
}

std::string peer_text(const Descriptor& socket) {
  Address address;
  address.bytes_ = sizeof address.storage_;
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&address.storage_), &address.bytes_) != 0) {
    return "somebody who is gone again";
  }
  return address.text();
}

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) fail("Could not make an epoll set");
}

void Poller::add(int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) fail("Could not watch a descriptor");
}

void Poller::change(int fd, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{.events = events, .data = {.u64 = tag}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) fail("Could not watch a descriptor");
}

void Poller::remove(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const epoll_event> Poller::ready(std::span<epoll_event> events, int milliseconds) const {
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds);
  return events.first(count > 0 ? count : 0);
}

}  // namespace trireme::transport
