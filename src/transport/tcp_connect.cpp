// How a TCP transport's connections come up, cross, and end.
#include "transport/tcp_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace trireme::transport {

namespace {

// Who is sent away more often is not wanted there.
constexpr int kMostDials = 20;

}  // namespace

wire::Hello Tcp::Impl::hello_to(const Connection& connection) const {
  return {.guard = guard_bits(guard_),
          .connection = static_cast<std::uint32_t>(connection.number),
          .job = job_,
          .from = static_cast<std::uint32_t>(rank_),
          .to = static_cast<std::uint32_t>(connection.peer),
          .ranks = static_cast<std::uint32_t>(peers_.size()),
          .connections = static_cast<std::uint32_t>(per_pair_)};
}

std::string Tcp::Impl::whereabouts(int peer) const {
  return peers_[peer].address ? peers_[peer].address->text() : "an address not told";
}

void Tcp::Impl::dial(Connection& connection) {
  const Peer& peer = peers_[connection.peer];
  if (!peer.address) throw UsageError(fmt::format("TCP does not know where rank {} is", connection.peer));
  ++dialled_;
  ++dialling_;
  ++connection.dials;
  if (connection.state == State::none) connection.dialled_at = std::chrono::steady_clock::now();
  connection.state = State::dialled;
  connection.dialled_here = true;
  connection.socket = begin_connection(*peer.address);
  if (!connection.socket) return could_not_connect(connection, reason(errno));
  connection.said = {.hello = hello_to(connection), .challenge = {}};
  connection.said.hello.nonce = fresh_nonce();
  connection.said.challenge = reply(connection.said.hello, wire::Stage::challenge, guard_);
  connection.answer_bytes = 0;
  connection.sender.put_first(connection.said.hello);
  poller_.add(connection.socket.get(), EPOLLIN | EPOLLOUT, tag(connection));
  say_hello(connection);
}

// False if the connection is not up yet, or never will be.
bool Tcp::Impl::say_hello(Connection& connection) {
  switch (connection.sender.send_record(connection.socket.get())) {
    case TcpSender::Result::all: break;
    case TcpSender::Result::some: return false;
    case TcpSender::Result::none: could_not_connect(connection, reason(errno)); return false;
  }
  poller_.change(connection.socket.get(), EPOLLIN, tag(connection));
  return true;
}

void Tcp::Impl::hear_answer(Connection& connection) {
  auto& answer = connection.answer;
  std::size_t& bytes = connection.answer_bytes;
  const ssize_t count = ::recv(connection.socket.get(), answer.data() + bytes, answer.size() - bytes, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  // Its door may be crowded with strangers, who are sent away without a word when more come, and ranks with them.
  const bool sent_away = bytes == 0 && (count == 0 || errno == ECONNRESET);
  if (count <= 0 && sent_away && !connection.crossed && connection.dials < kMostDials && !is_late(connection)) {
    end(connection);
    return dial(connection);
  }
  if (count < 0) return could_not_connect(connection, reason(errno));
  if (count == 0) return could_not_connect(connection, "it was closed without an answer");
  bytes += count;
  if (bytes < answer.size()) return;
  wire::Hello heard;
  std::memcpy(&heard, answer.data(), sizeof heard);
  bytes = 0;
  take_answer(connection, heard);
}

// A challenge, or the answer that all is well.
void Tcp::Impl::take_answer(Connection& connection, const wire::Hello& heard) {
  Transcript& said = connection.said;
  if (heard.magic != wire::kMagic) return could_not_connect(connection, "who answered is not a rank of Trireme");
  if (const std::string why = why_not(said.hello, heard); !why.empty()) return could_not_connect(connection, why);
  const bool challenged = said.challenge.nonce != Nonce{};
  wire::Hello expected = reply(said.hello, heard.stage, guard_);
  expected.build = heard.build;
  expected.nonce = heard.nonce;
  expected.proof = heard.proof;
  if (heard != expected) return could_not_connect(connection, "who answered is not a rank of this job");
  if (heard.stage == wire::Stage::refusal) {
    return could_not_connect(connection, "it says that this rank has another secret: give all ranks the same");
  }
  if (heard.stage == wire::Stage::challenge && guard_.secret && !challenged && heard.nonce != Nonce{}) {
    said.challenge = heard;
    wire::Hello proof = hello_to(connection);
    proof.stage = wire::Stage::proof;
    proof.proof = said.prove(guard_.secret, proof.stage);
    connection.sender.put_first(proof);
    poller_.change(connection.socket.get(), EPOLLIN | EPOLLOUT, tag(connection));
    say_hello(connection);
    return;
  }
  if (heard.stage != wire::Stage::answer || (guard_.secret && !challenged) || !said.proved(guard_.secret, heard)) {
    return could_not_connect(connection, "who answered did not prove that it has this job's secret");
  }
  open(connection);
}

// A peer of this job has dialled, and proved it.
void Tcp::Impl::enter(TcpGuest guest) {
  const wire::Hello& hello = guest.transcript.hello;
  Connection& connection = connections_to(static_cast<int>(hello.from))[hello.connection];
  const bool lost = peers_[connection.peer].standing != Standing::well;
  if (!lost && connection.state == State::none) return adopt(connection, std::move(guest));
  if (!lost && connection.state == State::dialled && !connection.crossed) {
    if (connection.peer < rank_) return adopt(connection, std::move(guest));
    connection.crossed = std::move(guest);
    return;
  }
  const bool crossed_late = connection.dialled_here && connection.peer > rank_;
  if (lost || !crossed_late)
    door_->turn_away(fmt::format("it says that it is rank {}, which is here already", hello.from));
}

void Tcp::Impl::adopt(Connection& connection, TcpGuest guest) {
  if (connection.state == State::dialled) end(connection);
  connection.dialled_here = false;
  connection.socket = std::move(guest.socket);
  wire::Hello answer = reply(guest.transcript.hello, wire::Stage::answer, guard_);
  answer.proof = guest.transcript.prove(guard_.secret, answer.stage);
  connection.said = guest.transcript;
  connection.sender.put_first(answer);
  poller_.add(connection.socket.get(), EPOLLIN, tag(connection));
  ++accepted_;
  // It has room for the answer, which is not encrypted yet.
  const bool answered = connection.sender.send_record(connection.socket.get()) == TcpSender::Result::all;
  open(connection);
  if (!answered) fail(connection.peer, "hung up before it was answered");
}

void Tcp::Impl::open(Connection& connection) {
  if (connection.state == State::dialled) --dialling_;
  connection.crossed.reset();
  connection.state = State::up;
  connection.receiver = std::make_unique<TcpReceiver>(connection.peer, self_, buffers_);
  if (guard_.encrypt) {
    const auto role = connection.dialled_here ? Tls::Role::client : Tls::Role::server;
    connection.tls = std::make_unique<Tls>(connection.socket.get(), role, connection.said.key(guard_.secret));
  }
  const auto& there = peers_[connection.peer].address;
  const bool on_host = there && Address::of(connection.socket).same_host(*there);
  connection.bounded = on_host || keep_queues_short(connection.socket);
  if (on_host && !connection.tls) connection.sender.stay_on_host();
  up_.push_back(&connection);
  flush(connection);
}

void Tcp::Impl::could_not_connect(Connection& connection, const std::string& why) {
  if (connection.crossed) return adopt(connection, std::move(*connection.crossed));
  end(connection);
  fail(connection.peer, fmt::format("could not connect to {}: {}", whereabouts(connection.peer), why));
}

// Queued messages stay queued.
void Tcp::Impl::end(Connection& connection) {
  if (connection.state == State::dialled) --dialling_;
  if (connection.state == State::up) std::erase(up_, &connection);
  if (std::exchange(connection.lacks_room, false)) --lacking_room_;
  connection.state = State::ended;
  if (connection.socket) poller_.remove(connection.socket.get());
  connection.tls.reset();
  connection.socket.reset();
  connection.crossed.reset();
  connection.receiver.reset();
}

void Tcp::Impl::close(std::chrono::milliseconds patience) {
  if (closed_) return;
  closing_ = true;
  const auto deadline = std::chrono::steady_clock::now() + patience;
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
      std::array<std::byte, 16384> dropped;
      while (::recv(connection.socket.get(), dropped.data(), dropped.size(), MSG_DONTWAIT) > 0) {
      }
    }
  }
  cut();
}

void Tcp::Impl::cut() {
  if (closed_) return;
  for (Connection& connection : connections_) {
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

}  // namespace trireme::transport
