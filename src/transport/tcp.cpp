#include "transport/tcp.h"

#include "transport/tcp_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace trireme::transport {

namespace {

// Tags of the poller: connections have their index.
constexpr std::uint64_t kBells = std::uint64_t{1} << 32;
constexpr std::uint64_t kDoor = std::uint64_t{1} << 33;

// With so few connections, to read from each is cheaper than to ask first which has something.
constexpr std::size_t kFew = 2;

// The other descriptors are then looked at once in so many passes, without and with messages to move meanwhile.
constexpr unsigned kIdlePasses = 8;
constexpr unsigned kBusyPasses = 64;

constexpr std::chrono::seconds kFarewell{2};

constexpr const char* kLeftEarly = "said goodbye before all that was sent to it had arrived";

wire::Hello hello_of_any(int rank, int ranks, std::uint64_t job, int connections) {
  return {.job = job,
          .to = static_cast<std::uint32_t>(rank),
          .ranks = static_cast<std::uint32_t>(ranks),
          .connections = static_cast<std::uint32_t>(connections)};
}

// While it lives, the flag is up.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  ~Raised() { flag_ = false; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  bool& flag_;
};

}  // namespace

Tcp::Impl::Impl(Tcp& self, int rank, int ranks, Inbox& inbox, const std::string& bind_address, std::uint64_t job,
                int connections)
    : self_(self), rank_(rank), job_(job), per_pair_(connections), inbox_(inbox) {
  if (rank < 0 || rank >= ranks) throw UsageError(fmt::format("There is no rank {} of {}", rank, ranks));
  if (connections < 1 || connections > 64) {
    throw UsageError(fmt::format("A pair of ranks can't have {} connections: from 1 to 64", connections));
  }
  door_.emplace(Address::parse(bind_address, 0), hello_of_any(rank, ranks, job, connections), poller_, kDoor);
  enter_ = [this](Descriptor socket, const wire::Hello& hello) { enter(std::move(socket), hello); };
  address_ = door_->address().text();
  peers_.resize(ranks);
  connections_ = std::vector<Connection>(static_cast<std::size_t>(ranks) * connections);
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    connections_[i].peer = static_cast<int>(i) / connections;
    connections_[i].number = static_cast<int>(i) % connections;
  }
}

TcpCounts Tcp::Impl::counts() const {
  return {.dialled = dialled_, .accepted = accepted_, .strangers = door_ ? door_->strangers() : strangers_};
}

void Tcp::Impl::meet(const std::vector<std::string>& addresses) {
  if (addresses.size() != peers_.size()) {
    throw UsageError(fmt::format("{} addresses for {} ranks", addresses.size(), peers_.size()));
  }
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer != rank_ && !addresses[peer].empty()) peers_[peer].address = Address::parse(addresses[peer]);
  }
}

void Tcp::Impl::watch(int fd) { poller_.add(fd, EPOLLIN, kBells + fd); }

std::span<Tcp::Impl::Connection> Tcp::Impl::connections_to(int peer) {
  return std::span(connections_).subspan(static_cast<std::size_t>(peer) * per_pair_, per_pair_);
}

std::uint64_t Tcp::Impl::tag(const Connection& connection) const { return &connection - connections_.data(); }

void Tcp::Impl::post(Outgoing& outgoing) {
  if (outgoing.peer < 0 || outgoing.peer >= static_cast<int>(peers_.size()) || outgoing.peer == rank_) {
    throw UsageError(fmt::format("TCP can't send from rank {} to rank {}", rank_, outgoing.peer));
  }
  if (const std::size_t bytes = total_bytes(outgoing.pieces); bytes > wire::kMostBytes) {
    throw UsageError(
        fmt::format("A message of {} bytes is longer than TCP takes, which is {}", bytes, wire::kMostBytes));
  }
  if (closed_) throw UsageError("The TCP transport is closed");
  const Peer& peer = peers_[outgoing.peer];
  if (peer.standing != Standing::well) return;
  Connection& connection = connections_to(outgoing.peer)[outgoing.envelope.segment % per_pair_];
  if (peer.left) {
    fail(outgoing.peer, kLeftEarly);
  } else {
    if (connection.state == State::none) dial(connection);
    connection.sender.post(outgoing);
    if (connection.state == State::up && !connection.lacks_room) flush(connection);
  }
  settle();
}

void Tcp::Impl::flush(Connection& connection) {
  const auto result = connection.sender.send(connection.socket.get(), sent_);
  want_room(connection, result == TcpSender::Result::some);
  if (result == TcpSender::Result::none) fail(connection.peer, reason(errno));
}

void Tcp::Impl::want_room(Connection& connection, bool want) {
  if (connection.lacks_room == want) return;
  connection.lacks_room = want;
  lacking_room_ += want ? 1 : -1;
  poller_.change(connection.socket.get(), want ? EPOLLIN | EPOLLOUT : EPOLLIN, tag(connection));
}

bool Tcp::Impl::progress() {
  if (closed_) return false;
  bool moved = false;
  const bool few = !up_.empty() && up_.size() <= kFew;
  if (few) {
    for (std::size_t i = 0; i < up_.size(); ++i) moved |= hear(*up_[i]);
  }
  ++passes_;
  const bool expectant = dialling_ > 0 || lacking_room_ > 0 || door_->has_guests();
  if (!few || expectant || passes_ % (moved ? kBusyPasses : kIdlePasses) == 0) moved |= look();
  return moved;
}

bool Tcp::Impl::look() {
  std::array<epoll_event, 32> space;
  const auto events = poller_.ready(space);
  for (const epoll_event& event : events) {
    const std::uint64_t tag = event.data.u64;
    if (tag < kBells) {
      look_at(connections_[tag], event.events);
    } else if (tag < kDoor) {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t bytes = ::read(static_cast<int>(tag - kBells), &rings, sizeof rings);
    } else {
      door_->look(tag, enter_);
    }
  }
  if (door_->has_guests()) door_->expire();
  settle();
  return !events.empty();
}

// Events may be those of a socket that has been replaced since: they are hints where to look, no more.
void Tcp::Impl::look_at(Connection& connection, std::uint32_t events) {
  if (connection.state == State::dialled) {
    if (!connection.sender.record_pending() || say_hello(connection)) hear_answer(connection);
  } else if (connection.state == State::up) {
    if ((events & EPOLLOUT) != 0 && connection.lacks_room) flush(connection);
    if ((events & ~EPOLLOUT) != 0) hear(connection);
  }
}

bool Tcp::Impl::hear(Connection& connection) {
  const auto result = connection.receiver->receive(connection.socket.get(), *this);
  if (result == TcpReceiver::Result::nothing) return false;
  if (result == TcpReceiver::Result::some) return true;
  const std::string why = connection.receiver->why();
  end(connection);
  if (result == TcpReceiver::Result::broken) {
    fail(connection.peer, fmt::format("{} ({})", why, whereabouts(connection.peer)));
  } else {
    leave(connection);
  }
  settle();
  return true;
}

// The peer said goodbye on this connection.
void Tcp::Impl::leave(Connection& connection) {
  Peer& peer = peers_[connection.peer];
  peer.left = true;
  if (connection.sender.busy()) fail(connection.peer, kLeftEarly);
  if (peer.standing != Standing::well) return;
  const auto is_up = [](const Connection& other) { return other.state == State::up; };
  if (std::ranges::none_of(connections_to(connection.peer), is_up)) closed(connection.peer);
}

void Tcp::Impl::fail(int peer, std::string why) {
  if (peers_[peer].standing != Standing::well) return;
  peers_[peer].standing = Standing::failing;
  peers_[peer].why = std::move(why);
  failing_.push_back(peer);
}

// What came before the end still counts, and may be the reason: a goodbye.
void Tcp::Impl::lose(int peer) {
  for (Connection& connection : connections_to(peer)) {
    while (connection.state == State::up && hear(connection)) {
    }
    end(connection);
    connection.sender.clear();
  }
  peers_[peer].standing = Standing::lost;
  lost(peer, peers_[peer].left ? kLeftEarly : peers_[peer].why);
}

void Tcp::Impl::settle() {
  if (telling_ || settling_) return;
  const Raised settling(settling_);
  tell_sent();
  while (!failing_.empty()) {
    const int peer = failing_.back();
    failing_.pop_back();
    lose(peer);
    tell_sent();
  }
}

void Tcp::Impl::tell_sent() {
  while (!sent_.empty()) sent(sent_.pop(), false);
}

std::size_t Tcp::Impl::place(int peer, const Envelope& envelope, std::size_t bytes, std::span<Piece> pieces) {
  if (closing_) return 0;
  const Raised telling(telling_);
  return inbox_.place(peer, envelope, bytes, pieces);
}

void Tcp::Impl::arrived(int peer, const Envelope& envelope, const Incoming& incoming) {
  if (closing_) {
    Incoming(incoming).release();
    return;
  }
  {
    const Raised telling(telling_);
    inbox_.arrived(peer, envelope, incoming);
  }
  tell_sent();
}

void Tcp::Impl::sent(Outgoing& outgoing, bool answered) {
  if (closing_) return;
  const Raised telling(telling_);
  inbox_.sent(outgoing, answered);
}

void Tcp::Impl::lost(int peer, const std::string& why) {
  if (closing_) return;
  const Raised telling(telling_);
  inbox_.lost(peer, why);
}

void Tcp::Impl::closed(int peer) {
  if (closing_) return;
  const Raised telling(telling_);
  inbox_.closed(peer);
}

void Tcp::Impl::release(Incoming& incoming) {
  buffers_.give_back(reinterpret_cast<TcpBuffers::Buffer*>(static_cast<std::uintptr_t>(incoming.token)));
}

void Tcp::Impl::close() {
  if (closed_) return;
  closing_ = true;
  const auto deadline = std::chrono::steady_clock::now() + kFarewell;
  say_goodbyes();
  while (pending() && std::chrono::steady_clock::now() < deadline) {
    pollfd wait{.fd = descriptor(), .events = POLLIN, .revents = 0};
    if (!progress()) ::poll(&wait, 1, 10);
    say_goodbyes();
  }
  for (Connection& connection : connections_) {
    if (connection.state == State::up) {
      // Bytes that nobody reads would make the kernel reset the connection, and the goodbye might be lost.
      ::shutdown(connection.socket.get(), SHUT_WR);
      while (::recv(connection.socket.get(), nullptr, wire::kMostBytes, MSG_TRUNC | MSG_DONTWAIT) > 0) {
      }
    }
    end(connection);
    connection.sender.clear();
  }
  strangers_ = door_->strangers();
  door_.reset();
  closed_ = true;
}

// To peers that have been sent all, on all connections: behind a goodbye nothing comes on any of them.
void Tcp::Impl::say_goodbyes() {
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    const auto is_busy = [](const Connection& connection) {
      return connection.state == State::dialled || (connection.sender.pending() && !connection.farewell);
    };
    if (std::ranges::any_of(connections_to(peer), is_busy)) continue;
    for (Connection& connection : connections_to(peer)) {
      if (connection.state != State::up || std::exchange(connection.farewell, true)) continue;
      connection.sender.put_first(wire::Header{.kind = wire::Kind::goodbye});
      flush(connection);
    }
  }
  settle();
}

bool Tcp::Impl::pending() const {
  for (const Connection& connection : connections_) {
    if (connection.state == State::dialled) return true;
    if (connection.state == State::up && connection.sender.pending()) return true;
  }
  return false;
}

Tcp::Tcp(int rank, int ranks, Inbox& inbox, const std::string& bind_address, std::uint64_t job, int connections)
    : impl_(std::make_unique<Impl>(*this, rank, ranks, inbox, bind_address, job, connections)) {}

Tcp::~Tcp() = default;

std::string Tcp::address() const { return impl_->address(); }
void Tcp::meet(std::vector<std::string> addresses) { impl_->meet(addresses); }
void Tcp::watch(int fd) { impl_->watch(fd); }
TcpCounts Tcp::counts() const { return impl_->counts(); }
void Tcp::post(Outgoing& outgoing) { impl_->post(outgoing); }
bool Tcp::progress() { return impl_->progress(); }
int Tcp::descriptor() const { return impl_->descriptor(); }
void Tcp::close() { impl_->close(); }
void Tcp::release(Incoming& incoming) { impl_->release(incoming); }
void Tcp::answer(Incoming& /*incoming*/) { throw UsageError("A message that came by TCP was not offered"); }

}  // namespace trireme::transport
