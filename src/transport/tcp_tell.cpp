// What a TCP transport's inbox is told, and when: never from within one of its own calls.
#include "transport/tcp_impl.h"

#include <algorithm>
#include <utility>

namespace trireme::transport {

namespace {

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
  if (peers_[peer].garbled) return garbled(peer, peers_[peer].why);
  lost(peer, peers_[peer].left ? kTcpLeftEarly : peers_[peer].why);
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

// The peer said goodbye on this connection.
void Tcp::Impl::leave(Connection& connection) {
  Peer& peer = peers_[connection.peer];
  peer.left = true;
  if (connection.sender.busy()) fail(connection.peer, kTcpLeftEarly);
  if (peer.standing != Standing::well) return;
  const auto is_up = [](const Connection& other) { return other.state == State::up; };
  if (std::ranges::none_of(connections_to(connection.peer), is_up)) closed(connection.peer);
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

void Tcp::Impl::garbled(int peer, const std::string& why) {
  if (closing_) return;
  const Raised telling(telling_);
  inbox_.garbled(peer, why);
}

void Tcp::Impl::closed(int peer) {
  if (closing_) return;
  const Raised telling(telling_);
  inbox_.closed(peer);
}

}  // namespace trireme::transport
