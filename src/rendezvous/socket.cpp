#include "rendezvous/socket.h"

#include "base/host_name.h"
#include "base/keep_alive.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <system_error>
#include <unistd.h>

namespace trireme::rendezvous {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

sockaddr* as_sockaddr(sockaddr_storage& storage) { return reinterpret_cast<sockaddr*>(&storage); }
const sockaddr* as_sockaddr(const sockaddr_storage& storage) { return reinterpret_cast<const sockaddr*>(&storage); }

enum class End : std::uint8_t { local, peer };

Address end_of(const Descriptor& socket, End end) {
  Address address;
  address.bytes = sizeof(address.storage);
  const auto get = end == End::local ? ::getsockname : ::getpeername;
  if (get(socket.get(), as_sockaddr(address.storage), &address.bytes) != 0) {
    throw SystemError(fmt::format("the address of a connection can't be told: {}", reason(errno)));
  }
  return address;
}

// The number as people write it. What comes as IPv4 through an IPv6 socket is shown as IPv4.
std::string number_of(const Address& address) {
  std::array<char, NI_MAXHOST> host{};
  const int error =
      ::getnameinfo(as_sockaddr(address.storage), address.bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  if (error != 0) throw SystemError(fmt::format("the address of a connection can't be shown: {}", gai_strerror(error)));
  std::string number = host.data();
  const std::string_view mapped = "::ffff:";
  if (number.starts_with(mapped) && number.find('.') != std::string::npos) number.erase(0, mapped.size());
  return number;
}

Descriptor tcp_socket(const Address& address) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw SystemError(fmt::format("no socket: {}", reason(errno)));
  return socket;
}

void set(const Descriptor& socket, int level, int option, int value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof(value));
}

// Nobody listens on a port of the system's choice, yet a connection to it may be given that same port at its own end,
// and so reach itself.
bool reaches_itself(const Descriptor& socket) {
  const Address local = end_of(socket, End::local);
  const Address peer = end_of(socket, End::peer);
  return local.bytes == peer.bytes && std::memcmp(&local.storage, &peer.storage, local.bytes) == 0;
}

}  // namespace

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

std::optional<HostAndPort> parse_host_and_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;
  }
  if (host.find_first_of("[]") != std::string_view::npos) return std::nullopt;
  std::uint16_t port = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || error != std::errc{} || rest != digits.data() + digits.size() || port == 0) return std::nullopt;
  return HostAndPort{std::string(host), port};
}

std::string format_host_and_port(std::string_view host, std::uint16_t port) {
  if (host.find(':') != std::string_view::npos) return fmt::format("[{}]:{}", host, port);
  return fmt::format("{}:{}", host.empty() ? "*" : host, port);
}

std::vector<Address> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (host.empty() ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    throw SystemError(fmt::format("no address is known for '{}': {}", host,
                                  error == EAI_SYSTEM ? reason(errno) : std::string(gai_strerror(error))));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address& address = addresses.emplace_back();
    address.bytes = one->ai_addrlen;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
  }
  // An IPv6 socket for all addresses takes IPv4 connections, too.
  if (host.empty()) {
    std::stable_partition(addresses.begin(), addresses.end(), [](const Address& a) { return a.family() == AF_INET6; });
  }
  return addresses;
}

Descriptor listen_at(const std::string& host, std::uint16_t port) {
  std::string why = "it has no address";
  bool in_use = false;
  for (const Address& address : resolve(host, port)) {
    Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) {
      why = reason(errno);
      continue;
    }
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.family() == AF_INET6) set(socket, IPPROTO_IPV6, IPV6_V6ONLY, host.empty() ? 0 : 1);
    if (::bind(socket.get(), as_sockaddr(address.storage), address.bytes) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0) {
      return socket;
    }
    why = reason(errno);
    in_use = errno == EADDRINUSE;
    if (in_use) why += "; another program, or another rank 0 of this job, has that port: choose another, or end it";
    if (errno == EADDRNOTAVAIL) why += "; that address is not one of this machine's";
  }
  why = fmt::format("can't listen at {}: {}", format_host_and_port(host, port), why);
  if (in_use) throw PortInUse(why);
  throw SystemError(why);
}

Descriptor connect_to(const Address& address, Clock::time_point deadline) {
  Descriptor socket = tcp_socket(address);
  int error = 0;
  if (::connect(socket.get(), as_sockaddr(address.storage), address.bytes) != 0) {
    error = errno;
    if (error == EINPROGRESS || error == EINTR) {
      if (!wait_for(socket, POLLOUT, deadline)) throw SystemError("no answer");
      socklen_t bytes = sizeof(error);
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
  }
  if (error != 0) throw SystemError(reason(error));
  if (reaches_itself(socket)) throw SystemError(reason(ECONNREFUSED));
  prepare(socket);
  return socket;
}

void prepare(const Descriptor& socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  keep_alive(socket.get());
  // The system does not ask while something is on its way, and would send that again for a quarter of an hour. (A rank
  // that is stopped for that long, before it has read what all ranks say of themselves, is lost too if that is much.)
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 8000);
}

std::string local_number(const Descriptor& socket) { return number_of(end_of(socket, End::local)); }

std::string peer_number(const Descriptor& socket) { return number_of(end_of(socket, End::peer)); }

std::uint16_t local_port(const Descriptor& socket) {
  const Address address = end_of(socket, End::local);
  if (address.family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

bool wait_for(const Descriptor& socket, short events, Clock::time_point deadline) {
  pollfd entry{socket.get(), events, 0};
  while (true) {
    const int ready = ::poll(&entry, 1, poll_time(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw SystemError(fmt::format("poll: {}", reason(errno)));
    if (Clock::now() >= deadline) return false;
  }
}

int poll_time(Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(1);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kMost).count());
}

std::string this_process() { return fmt::format("{}:{}", host_name(), ::getpid()); }

}  // namespace trireme::rendezvous
