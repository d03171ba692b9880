#include "transport/tcp.h"

#include "transport/tcp_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

wire::Hello hello_of_any(int rank, int ranks, std::uint64_t job, int connections, const Guard& guard) {
  return {.guard = guard_bits(guard),
          .job = job,
          .to = static_cast<std::uint32_t>(rank),
          .ranks = static_cast<std::uint32_t>(ranks),
          .connections = static_cast<std::uint32_t>(connections)};
}

}  // namespace

Tcp::Impl::Impl(Tcp& self, int rank, int ranks, Inbox& inbox, const std::string& bind_address, std::uint64_t job,
                int connections, const Guard& guard)
    : self_(self), rank_(rank), job_(job), per_pair_(connections), guard_(guard), inbox_(inbox) {
  if (rank < 0 || rank >= ranks) throw UsageError(fmt::format("There is no rank {} of {}", rank, ranks));
  if (connections < 1 || connections > kMostConnections) {
    throw UsageError(
        fmt::format("A pair of ranks can't have {} connections: from 1 to {}", connections, kMostConnections));
  }
  if (guard.encrypt && !guard.secret) throw UsageError("TCP can't encrypt without a secret that all ranks have");
  door_.emplace(Address::parse(bind_address, 0), hello_of_any(rank, ranks, job, connections, guard), guard);
  poller_.add(door_->descriptor(), EPOLLIN, kDoor);
  enter_ = [this](TcpGuest guest) { enter(std::move(guest)); };
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
    if (peer == rank_ || addresses[peer].empty()) continue;
    try {
      peers_[peer].address = Address::parse(addresses[peer]);
    } catch (const UsageError& error) {
      throw ProtocolError(fmt::format("rank {} announced an address that makes no sense: {}", peer, error.what()));
    }
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
    fail(outgoing.peer, kTcpLeftEarly);
  } else {
    if (connection.state == State::none) dial(connection);
    connection.sender.post(outgoing);
    if (connection.state == State::up && !connection.lacks_room) flush(connection);
  }
  settle();
}

void Tcp::Impl::flush(Connection& connection) {
  const auto result = connection.sender.send(stream(connection), sent_);
  // Keys are still being exchanged: it goes on when something has come.
  const bool waits_to_read = connection.tls && connection.tls->waits_to_read();
  want_room(connection, result == TcpSender::Result::some && !waits_to_read);
  if (connection.lacks_room && !connection.bounded) connection.bounded = keep_queues_short(connection.socket);
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
    std::array<Connection*, kFew> now{};  // one that ends leaves up_
    std::ranges::copy(up_, now.begin());
    for (Connection* connection : now) {
      if (connection != nullptr && connection->state == State::up) moved |= hear(*connection);
    }
  }
  ++passes_;
  const bool expectant = dialling_ > 0 || lacking_room_ > 0 || door_->has_guests();
  if (!few || expectant || passes_ % (moved ? kBusyPasses : kIdlePasses) == 0) moved |= look();
  return moved;
}

bool Tcp::Impl::wait(int milliseconds) { return !closed_ && look(milliseconds); }

bool Tcp::Impl::look(int milliseconds) {
  std::array<epoll_event, 32> space;
  const auto events = poller_.ready(space, milliseconds);
  bool somebody_came = false;
  for (const epoll_event& event : events) {
    const std::uint64_t tag = event.data.u64;
    if (tag < kBells) {
      look_at(connections_[tag], event.events);
    } else if (tag < kDoor) {
      std::uint64_t rings = 0;
      [[maybe_unused]] const ssize_t bytes = ::read(static_cast<int>(tag - kBells), &rings, sizeof rings);
    } else {
      somebody_came = true;
    }
  }
  if (somebody_came) {
    door_->look(enter_);
  } else {
    door_->expire();
  }
  settle();
  return !events.empty();
}

Greeted Tcp::Impl::greet() {
  if (closed_) return {.open = false};
  const bool any = door_->look(enter_);
  settle();
  return {.any = any, .again = door_->next_expiry()};
}

// Why a connection is as good as ended; empty: it is not. Neither a window that is closed, as that of a rank that does
// not read, nor a busy network counts, as long as something is acknowledged.
std::string Tcp::Impl::cut_off(const Connection& connection) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(connection.socket.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  constexpr int kCalls = 3;
  if (info.tcpi_state == TCP_SYN_SENT) {
    return is_late(connection) ? "its host does not answer; is it up, and is its network?" : "";
  }
  const bool unanswered = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes >= kCalls;
  const std::chrono::milliseconds silent(info.tcpi_last_ack_recv);
  if (!unanswered || silent < kLiveness) return {};
  return fmt::format("its host has been silent for {:.0f} s; is it up, and is its network?",
                     std::chrono::duration<double>(silent).count());
}

bool Tcp::Impl::is_late(const Connection& connection) {
  return std::chrono::steady_clock::now() - connection.dialled_at >= kLiveness;
}

bool Tcp::Impl::is_connected(int peer) const {
  const auto first = connections_.begin() + static_cast<std::ptrdiff_t>(peer) * per_pair_;
  return std::any_of(first, first + per_pair_, [](const Connection& each) { return each.state != State::none; });
}

void Tcp::Impl::check_links() {
  for (Connection& connection : connections_) {
    if (connection.state != State::up && connection.state != State::dialled) continue;
    if (std::string why = cut_off(connection); !why.empty()) fail(connection.peer, std::move(why));
  }
  settle();
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
  const auto result = connection.receiver->receive(stream(connection), *this);
  if (result == TcpReceiver::Result::nothing || result == TcpReceiver::Result::some) {
    if (connection.tls && connection.sender.pending() && !connection.lacks_room) flush(connection);
    return result == TcpReceiver::Result::some;
  }
  const std::string why = connection.receiver->why();
  end(connection);
  if (result != TcpReceiver::Result::goodbye) {
    peers_[connection.peer].garbled = result == TcpReceiver::Result::garbled;
    fail(connection.peer, fmt::format("{} ({})", why, whereabouts(connection.peer)));
  } else {
    leave(connection);
  }
  settle();
  return true;
}

void Tcp::Impl::release(Incoming& incoming) { buffers_.give_back(std::bit_cast<TcpBuffers::Buffer*>(incoming.token)); }

Tcp::Tcp(int rank, int ranks, Inbox& inbox, const std::string& bind_address, std::uint64_t job, int connections,
         const Guard& guard)
    : impl_(std::make_unique<Impl>(*this, rank, ranks, inbox, bind_address, job, connections, guard)) {}

Tcp::~Tcp() = default;

std::string Tcp::address() const { return impl_->address(); }
void Tcp::meet(const std::vector<std::string>& addresses) { impl_->meet(addresses); }
void Tcp::watch(int fd) { impl_->watch(fd); }
int Tcp::door() const { return impl_->door(); }
Greeted Tcp::greet() { return impl_->greet(); }
bool Tcp::has_guests() const { return impl_->has_guests(); }
TcpCounts Tcp::counts() const { return impl_->counts(); }
void Tcp::post(Outgoing& outgoing) { impl_->post(outgoing); }
bool Tcp::progress() { return impl_->progress(); }
bool Tcp::wait(std::chrono::milliseconds most) { return impl_->wait(static_cast<int>(most.count())); }
int Tcp::descriptor() const { return impl_->descriptor(); }
void Tcp::close_within(std::chrono::milliseconds patience) { impl_->close(patience); }
bool Tcp::is_connected(int peer) const { return impl_->is_connected(peer); }
void Tcp::check_links() { impl_->check_links(); }
void Tcp::cut() { impl_->cut(); }
void Tcp::release(Incoming& incoming) { impl_->release(incoming); }
void Tcp::answer(Incoming& /*incoming*/) { throw UsageError("A message that came by TCP was not offered"); }

}  // namespace trireme::transport
