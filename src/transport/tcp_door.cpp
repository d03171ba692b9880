#include "transport/tcp_door.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/socket.h>
#include <utility>

namespace trireme::transport {

namespace {

constexpr std::chrono::seconds kPatience{5};
// Who knows the job's number is most likely a rank, which proves the secret when it next makes progress.
constexpr std::chrono::minutes kLongPatience{10};
constexpr std::size_t kFewGuests = 256;

// The poller's tag of the listener; guests have those behind it.
constexpr std::uint64_t kListener = 0;

Descriptor any_descriptor() { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// A guest's socket has room for a record: it has been sent one at most.
bool send_whole(const Descriptor& socket, const wire::Hello& record) {
  return ::send(socket.get(), &record, sizeof record, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof record;
}

}  // namespace

TcpDoor::TcpDoor(const Address& address, const wire::Hello& expected, const Guard& guard)
    : expected_(expected),
      guard_(guard),
      most_guests_(std::max(kFewGuests, std::size_t{2} * expected.ranks * expected.connections)),
      next_tag_(kListener + 1),
      listener_(listen_at(address)),
      address_(Address::of(listener_)),
      reserve_(any_descriptor()),
      doorman_(guard.notice) {
  poller_.add(listener_.get(), EPOLLIN, kListener);
}

bool TcpDoor::look(const Enter& enter) {
  bool any = false;
  std::array<epoll_event, 32> space;
  for (const epoll_event& event : poller_.ready(space)) {
    if (event.data.u64 == kListener) {
      any |= let_in(enter);
    } else if (const auto guest = guests_.find(event.data.u64); guest != guests_.end()) {
      listen_to(guest, enter);
      any = true;
    }
  }
  return expire() || any;
}

// False if nobody could be.
bool TcpDoor::let_in(const Enter& enter) {
  constexpr int kAtOnce = 64;  // others have something to say, too
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor socket = accept_connection(listener_);
    if (!socket) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      const bool none_left = errno == EMFILE || errno == ENFILE;
      return (none_left && turn_one_away()) || i > 0;
    }
    if (guests_.size() >= most_guests_) make_room();
    const std::uint64_t tag = next_tag_++;
    poller_.add(socket.get(), EPOLLIN, tag);
    const auto guest = guests_.emplace(tag, Guest{.socket = std::move(socket), .since = Clock::now()}).first;
    listen_to(guest, enter);  // a peer's hello is often there already
  }
  return true;
}

// Without a descriptor nobody can be let in. Who is turned away hears of it, instead of waiting for good.
bool TcpDoor::turn_one_away() {
  reserve_.reset();
  const bool any = static_cast<bool>(accept_connection(listener_));
  if (any) doorman_.turn_away("this process has no descriptors left: raise 'ulimit -n'");
  reserve_ = any_descriptor();
  return any;
}

// A crowd of strangers does not push out those that have said a right hello.
void TcpDoor::make_room() {
  const auto stranger = std::ranges::find_if(guests_, [](const auto& guest) { return !guest.second.challenged; });
  drop(stranger != guests_.end() ? stranger : guests_.begin(),
       "there are too many at once that have not said who they are");
}

void TcpDoor::listen_to(Guests::iterator guest, const Enter& enter) {
  auto& [socket, since, said, bytes, challenged, transcript] = guest->second;
  const ssize_t count = ::recv(socket.get(), said.data() + bytes, said.size() - bytes, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (count <= 0 && challenged) {  // Both had dialled, and it has taken the other connection.
    guests_.erase(guest);
    return;
  }
  if (count <= 0) return drop(guest, "it hung up before it had said who it is");
  bytes += count;
  if (std::memcmp(said.data(), &wire::kMagic, std::min(bytes, sizeof wire::kMagic)) != 0) {
    return drop(guest, "what it said is no hello of Trireme");
  }
  if (bytes < said.size()) return;
  wire::Hello hello;
  std::memcpy(&hello, said.data(), said.size());
  bytes = 0;
  challenged ? hear_proof(guest, hello, enter) : hear_hello(guest, hello, enter);
}

void TcpDoor::hear_hello(Guests::iterator guest, const wire::Hello& hello, const Enter& enter) {
  if (const std::string why = why_not(expected_, hello); !why.empty()) return refuse(guest, hello, why);
  if (!is_of_this_job(hello)) return drop(guest, "its hello is not that of a rank of this job");
  Guest& who = guest->second;
  who.transcript = {.hello = hello, .challenge = reply(hello, wire::Stage::challenge, guard_)};
  if (!guard_.secret) return admit(guest, enter);
  who.transcript.challenge.nonce = fresh_nonce();
  who.challenged = true;
  if (!send_whole(who.socket, who.transcript.challenge)) drop(guest, "it hung up before it had proved who it is");
}

void TcpDoor::hear_proof(Guests::iterator guest, const wire::Hello& proof, const Enter& enter) {
  if (proof.stage != wire::Stage::proof || !guest->second.transcript.proved(guard_.secret, proof)) {
    return refuse(guest, guest->second.transcript.hello,
                  fmt::format("it says that it is rank {}, but has another secret than rank {}",
                              guest->second.transcript.hello.from, expected_.to));
  }
  admit(guest, enter);
}

void TcpDoor::admit(Guests::iterator guest, const Enter& enter) {
  TcpGuest peer{.socket = std::move(guest->second.socket), .transcript = guest->second.transcript};
  poller_.remove(peer.socket.get());
  guests_.erase(guest);
  enter(std::move(peer));
}

// What it has sent behind its hello is read: the kernel would throw the refusal away otherwise.
void TcpDoor::refuse(Guests::iterator guest, const wire::Hello& said, const std::string& why) {
  const Descriptor& socket = guest->second.socket;
  send_whole(socket, reply(said, wire::Stage::refusal, guard_));
  ::shutdown(socket.get(), SHUT_WR);
  std::array<std::byte, 4096> dropped;
  ::recv(socket.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
  drop(guest, why);
}

bool TcpDoor::is_of_this_job(const wire::Hello& hello) const {
  if (hello.from >= hello.ranks || hello.from == hello.to || hello.connection >= hello.connections) return false;
  return hello.stage == wire::Stage::hello && hello.job == expected_.job && hello.to == expected_.to &&
         hello.ranks == expected_.ranks && hello.connections == expected_.connections;
}

void TcpDoor::drop(Guests::iterator guest, const std::string& why) {
  doorman_.turn_away(fmt::format("{} came to rank {}, but {}", peer_text(guest->second.socket), expected_.to, why));
  guests_.erase(guest);
}

bool TcpDoor::expire() {
  if (guests_.empty()) return false;
  const auto now = Clock::now();
  const std::size_t before = guests_.size();
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto next = std::next(guest);
    const auto waited = now - guest->second.since;
    if (waited <= kPatience) break;
    if (!guest->second.challenged)
      drop(guest, "it did not say who it is in time");
    else if (waited > kLongPatience)
      drop(guest, "it did not prove who it is in time");
    guest = next;
  }
  return guests_.size() < before;
}

TcpDoor::Clock::time_point TcpDoor::next_expiry() const {
  auto next = Clock::time_point::max();
  for (const auto& [tag, guest] : guests_) {
    next = std::min(next, guest.since + (guest.challenged ? Clock::duration(kLongPatience) : kPatience));
  }
  return next;
}

}  // namespace trireme::transport
