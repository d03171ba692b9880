#include "transport/tcp_door.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <utility>

namespace trireme::transport {

namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr std::size_t kFewGuests = 256;

Descriptor any_descriptor() { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

TcpDoor::TcpDoor(const Address& address, const wire::Hello& expected, Poller& poller, std::uint64_t tags)
    : expected_(expected),
      poller_(poller),
      tags_(tags),
      most_guests_(std::max(kFewGuests, std::size_t{2} * expected.ranks * expected.connections)),
      next_tag_(tags + 1),
      listener_(listen_at(address)),
      address_(Address::of(listener_)),
      reserve_(any_descriptor()) {
  poller_.add(listener_.get(), EPOLLIN, tags_);
}

void TcpDoor::look(std::uint64_t tag, const Enter& enter) {
  if (tag == tags_) return let_in(enter);
  if (const auto guest = guests_.find(tag); guest != guests_.end()) listen_to(guest, enter);
}

void TcpDoor::let_in(const Enter& enter) {
  while (true) {
    Descriptor socket = accept_connection(listener_);
    if (!socket) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EMFILE || errno == ENFILE) turn_one_away();
      return;
    }
    if (guests_.size() >= most_guests_) drop(guests_.begin());
    const std::uint64_t tag = next_tag_++;
    poller_.add(socket.get(), EPOLLIN, tag);
    const auto guest = guests_.emplace(tag, Guest{.socket = std::move(socket), .since = Clock::now()}).first;
    listen_to(guest, enter);  // a peer's hello is often there already
  }
}

// Without a descriptor nobody can be let in. Who is turned away hears of it, instead of waiting for good.
void TcpDoor::turn_one_away() {
  reserve_.reset();
  if (accept_connection(listener_)) ++strangers_;
  reserve_ = any_descriptor();
}

void TcpDoor::listen_to(Guests::iterator guest, const Enter& enter) {
  auto& [socket, since, said, bytes] = guest->second;
  const ssize_t count = ::recv(socket.get(), said.data() + bytes, said.size() - bytes, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  bytes += std::max<ssize_t>(count, 0);
  if (count <= 0 || !welcome(guest->second)) return drop(guest);
  if (bytes < said.size()) return;
  wire::Hello hello;
  std::memcpy(&hello, said.data(), said.size());
  Descriptor peer = std::move(socket);
  poller_.remove(peer.get());
  guests_.erase(guest);
  enter(std::move(peer), hello);
}

// What has been said so far is, or may become, a peer's hello.
bool TcpDoor::welcome(const Guest& guest) const {
  if (guest.bytes < guest.said.size()) {
    return std::memcmp(guest.said.data(), &wire::kMagic, std::min(guest.bytes, sizeof wire::kMagic)) == 0;
  }
  wire::Hello hello;
  std::memcpy(&hello, guest.said.data(), sizeof hello);
  if (hello.from >= hello.ranks || hello.from == hello.to || hello.connection >= hello.connections) return false;
  hello.from = expected_.from;
  hello.connection = expected_.connection;
  return hello == expected_;
}

void TcpDoor::drop(Guests::iterator guest) {
  ++strangers_;
  guests_.erase(guest);
}

void TcpDoor::expire() {
  const auto now = Clock::now();
  while (!guests_.empty() && now - guests_.begin()->second.since > kPatience) drop(guests_.begin());
}

}  // namespace trireme::transport
