#include "rendezvous/server.h"

#include "base/signals.h"
#include "rendezvous/channel.h"
#include "rendezvous/client.h"
#include "rendezvous/meeting.h"
#include "rendezvous/socket.h"
#include "rendezvous/wire.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::rendezvous {
namespace {

using namespace std::chrono_literals;

// A rank says hello as soon as it is connected.
constexpr auto kHelloPatience = 10s;
constexpr std::size_t kMostHelloBytes = 1024;
// More than these at once are no ranks: those that have been here longest are dropped.
constexpr std::size_t kMostStrangers = 4096;
constexpr auto kFarewellPatience = 5s;
// When the system has no descriptor for one more connection.
constexpr auto kAcceptPause = 100ms;
// Ranks that come and go without ever meeting the others begin no meetings beyond these.
constexpr std::size_t kMostMeetings = 64;

std::string peer_name(const Descriptor& socket) {
  try {
    return peer_number(socket);
  } catch (const SystemError&) {
    return "somebody who is gone again";
  }
}

void check_limits(int ranks) {
  if (ranks < 1) throw UsageError(fmt::format("a rendezvous of {} ranks: there has to be one at least", ranks));
  constexpr rlim_t kOtherFiles = 24;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || static_cast<rlim_t>(ranks) + kOtherFiles <= limit.rlim_cur) return;
  throw UsageError(fmt::format("a rendezvous of {} ranks needs more open files than the {} allowed: raise 'ulimit -n'",
                               ranks, limit.rlim_cur));
}

}  // namespace

class Server::Loop {
 public:
  Loop(const std::string& host, std::uint16_t port, int ranks, Meetings meetings, const std::string& name,
       const Guard& guard)
      : ranks_(ranks),
        guard_(guard),
        doorman_(guard.notice),
        many_(meetings == Meetings::many),
        name_(fmt::format("{} ({})", name, this_process())),
        listener_(listen_at(host, port)),
        port_(local_port(listener_)),
        poll_(::epoll_create1(EPOLL_CLOEXEC)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!poll_ || !wake_ || !watch(EPOLL_CTL_ADD, listener_, kListener, EPOLLIN) ||
        !watch(EPOLL_CTL_ADD, wake_, kWake, EPOLLIN)) {
      throw SystemError(fmt::format("nothing to wait with: {}", std::generic_category().message(errno)));
    }
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    stops_ = true;
    wake();
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::uint16_t port() const { return port_; }
  int strangers() const { return strangers_count_; }

  void tell_ended(int rank, const std::string& how) {
    {
      const std::lock_guard lock(mutex_);
      told_.emplace_back(rank, how);
    }
    wake();
  }

 private:
  struct Session;

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  }

  struct Connection {
    std::uint64_t id;  // never used again, unlike descriptors
    Channel channel;
    bool watched_for_room = false;
    std::string from{};   // its address
    std::string hello{};  // what it said, while it has yet to prove the secret
    std::string challenge{};
    bool dismissed = false;      // nothing more is read from it, and it is dropped when it hangs up or takes too long
    Session* session = nullptr;  // of a rank
    int rank = -1;
    Clock::time_point patience_ends{};                         // of others
    std::optional<std::list<Connection*>::iterator> listed{};  // among them
  };

  struct Session {
    Meeting meeting;
    std::vector<Connection*> present{};
  };

  bool watch(int operation, const Descriptor& descriptor, std::uint64_t id, std::uint32_t events) const {
    epoll_event event{.events = events, .data = {.u64 = id}};
    return ::epoll_ctl(poll_.get(), operation, descriptor.get(), &event) == 0;
  }

  // Should memory run out, all ranks find the connection closed.
  void run() noexcept {
    try {
      while (!done()) turn();
    } catch (const std::exception&) {
      listener_.close();
      connections_.clear();
    }
  }

  bool done() const { return stop_at_ && (connections_.empty() || Clock::now() >= *stop_at_); }

  void turn() {
    std::array<epoll_event, 256> events{};
    const int count = ::epoll_wait(poll_.get(), events.data(), events.size(), wait_time());
    for (int i = 0; i < count; ++i) {
      const std::uint64_t id = events[i].data.u64;
      if (id == kWake) {
        std::uint64_t times = 0;
        [[maybe_unused]] const ssize_t bytes = ::read(wake_.get(), &times, sizeof(times));
        take_ended();
        if (stops_ && !stop_at_) begin_to_stop();
      } else if (id == kListener) {
        accept_some();
      } else if (const auto found = connections_.find(id); found != connections_.end()) {
        serve(*found->second, events[i].events);
      }
    }
    const auto now = Clock::now();
    while (!strangers_.empty() && strangers_.front()->patience_ends <= now) {
      turn_away(*strangers_.front(), "it did not say who it is in time");
    }
    if (accept_at_ && *accept_at_ <= now) {
      accept_at_.reset();
      watch(EPOLL_CTL_MOD, listener_, kListener, EPOLLIN);
    }
    for (const std::uint64_t id : dropped_) connections_.erase(id);
    dropped_.clear();
  }

  int wait_time() const {
    auto next = Clock::time_point::max();
    if (stop_at_) next = std::min(next, *stop_at_);
    if (accept_at_) next = std::min(next, *accept_at_);
    if (!strangers_.empty()) next = std::min(next, strangers_.front()->patience_ends);
    return next == Clock::time_point::max() ? -1 : poll_time(next);
  }

  void take_ended() {
    std::vector<std::pair<int, std::string>> told;
    {
      const std::lock_guard lock(mutex_);
      told.swap(told_);
    }
    for (auto& [rank, how] : told) ended_.emplace(rank, std::move(how));
    for (Session& session : sessions_) fail_if_one_ended(session);
  }

  // A rank that has been there and lost its connection is told of by that.
  void fail_if_one_ended(Session& session) {
    if (session.meeting.failure()) return;
    for (const auto& [rank, how] : ended_) {
      if (session.meeting.presence(rank) != Meeting::Presence::awaited) continue;
      session.meeting.fail(
          {Failure::Type::peer,
           fmt::format("rank {} {} before it came to the rendezvous: does it call init()?", rank, how)});
      tell_failure(session);
      return;
    }
  }

  void begin_to_stop() {
    stop_at_ = many_ ? Clock::now() : Clock::now() + kFarewellPatience;
    accept_at_.reset();
    listener_.close();
    for (Connection* stranger : std::vector(strangers_.begin(), strangers_.end())) {
      if (!stranger->dismissed) drop(*stranger);
    }
    for (Session& session : sessions_) {
      if (session.meeting.awaited() == 0 || session.meeting.failure()) continue;
      session.meeting.fail({Failure::Type::peer, fmt::format("{} ended the rendezvous: {}", name_, missing(session))});
      tell_failure(session);
    }
  }

  void accept_some() {
    constexpr int kAtOnce = 256;
    for (int i = 0; i < kAtOnce && listener_; ++i) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (none_left) make_room();
        if (none_left || errno == EAGAIN) return;
        continue;  // That one has gone again.
      }
      if (strangers_.size() >= kMostStrangers) {
        turn_away(*strangers_.front(), "there are too many at once that have not said who they are");
      }
      without_delay(socket);
      const std::uint64_t id = next_id_++;
      if (!watch(EPOLL_CTL_ADD, socket, id, EPOLLIN)) continue;
      auto connection = std::make_unique<Connection>(Connection{.id = id, .channel = Channel(std::move(socket))});
      connection->from = peer_name(connection->channel.socket());
      connection->channel.reader.expect_at_most(kMostHelloBytes);
      list_as_stranger(*connection);
      connections_[id] = std::move(connection);
    }
  }

  // The listener would be readable for ever.
  void make_room() {
    if (!strangers_.empty()) {
      turn_away(*strangers_.front(), "this process has no descriptors left: raise 'ulimit -n'");
      return;
    }
    watch(EPOLL_CTL_MOD, listener_, kListener, 0);
    accept_at_ = Clock::now() + kAcceptPause;
  }

  void list_as_stranger(Connection& connection) {
    connection.patience_ends = Clock::now() + kHelloPatience;
    connection.listed = strangers_.insert(strangers_.end(), &connection);
  }

  void unlist(Connection& connection) {
    if (connection.listed) strangers_.erase(*connection.listed);
    connection.listed.reset();
  }

  // The connection is closed now; its memory goes at the end of the turn.
  void drop(Connection& connection) {
    unlist(connection);
    connection.channel.close();
    dropped_.push_back(connection.id);
  }

  // One that did not prove to be a rank. Those that were dismissed have been counted, or were welcome.
  void turn_away(Connection& connection, const std::string& why) {
    if (!connection.dismissed) count_stranger(fmt::format("{} came to {}, but {}", connection.from, name_, why));
    drop(connection);
  }

  void count_stranger(const std::string& what) {
    doorman_.turn_away(what);
    strangers_count_ = doorman_.count();
    last_stranger_ = what;
  }

  // Who is missing may be among those that were turned away.
  std::string missing(const Session& session) const {
    std::string text = session.meeting.missing();
    if (strangers_count_ == 1) text += fmt::format("; one was turned away: {}", last_stranger_);
    if (strangers_count_ > 1)
      text += fmt::format("; {} were turned away, the last: {}", doorman_.count(), last_stranger_);
    return text;
  }

  void serve(Connection& connection, std::uint32_t events) {
    if (!connection.channel.open()) return;
    if ((events & EPOLLOUT) != 0) connection.channel.flush();
    watch_for_room(connection);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    do hear(connection);
    while (connection.channel.open() && connection.channel.unread());
    if (!connection.channel.open()) return;
    connection.channel.flush();  // What waited for keys to be exchanged.
    watch_for_room(connection);
  }

  // One piece, so that a rank with much to say does not keep the others waiting.
  void hear(Connection& connection) {
    auto [bytes, ended, why] = connection.channel.receive(buffer_);
    try {
      while (!bytes.empty() && connection.channel.open() && !connection.dismissed) {
        if (auto frame = connection.channel.reader.take(bytes)) handle(connection, *frame);
      }
    } catch (const ProtocolError& error) {
      refuse(connection, {Failure::Type::protocol,
                          fmt::format("{} was sent what makes no sense to a rendezvous: {}", name_, error.what())});
    }
    if (!ended || !connection.channel.open()) return;
    if (connection.session != nullptr) {
      lose(connection,
           why.empty() ? "hung up without a goodbye: it ended or was killed" : fmt::format("is lost: {}", why));
      drop(connection);
      return;
    }
    turn_away(connection, "it hung up before it had said who it is");
  }

  void handle(Connection& connection, const FrameReader::Frame& message) {
    if (connection.session == nullptr) {
      hear_stranger(connection, message);
      return;
    }
    Session& session = *connection.session;
    switch (message.kind) {
      case Kind::blob: take_blob(connection, message.body); break;
      case Kind::ask: send(connection, frame(Kind::missing, Cursor(message.body).u32(), missing(session))); break;
      case Kind::gave_up:
        if (session.meeting.failure()) break;
        session.meeting.give_up(connection.rank, read_failure(message.body));
        tell_failure(session);
        break;
      case Kind::goodbye:
        part(connection, [&](Meeting& meeting) { meeting.leave(connection.rank); });
        drop(connection);
        break;
      default: throw ProtocolError("a message that is no rank's to send");
    }
  }

  // A hello first; and then, where there is a secret, a proof of it.
  void hear_stranger(Connection& connection, const FrameReader::Frame& message) {
    const bool challenged = !connection.challenge.empty();
    if (message.kind != (challenged ? Kind::proof : Kind::hello)) {
      throw ProtocolError(challenged ? "no proof came after the hello" : "no hello came first");
    }
    if (challenged) return hear_proof(connection, read_digest(message.body));
    const Hello hello = read_hello(message.body);
    if (const std::string objection = object_to(hello); !objection.empty()) {
      refuse(connection, {Failure::Type::usage, objection});
    } else if (!guard_.secret) {
      admit(connection, hello);
    } else {
      connection.hello = message.body;
      connection.challenge = body(Challenge{.nonce = fresh_nonce(), .who = name_});
      send(connection, frame(Kind::challenge, connection.challenge));
    }
  }

  // Why this one and the server can't talk; empty: they can.
  std::string object_to(const Hello& hello) const {
    if (hello.version != kVersion) {
      return fmt::format(
          "this program is {} (version {} of the rendezvous), and {} is {} (version {}): build both with the same "
          "Trireme",
          hello.build, hello.version, name_, Hello::own_build(), kVersion);
    }
    if (hello.guard != guard_bits(guard_)) {
      return fmt::format(
          "{} has {}, and {} has {}: give all the same TRIREME_SECRET (or TRIREME_SECRET_FILE) and "
          "TRIREME_ENCRYPT, or none of them any",
          hello.name(), describe_guard(hello.guard), name_, describe_guard(guard_bits(guard_)));
    }
    return {};
  }

  void hear_proof(Connection& connection, const Digest& proof) {
    const Hello hello = read_hello(connection.hello);
    if (same_digest(proof, client_proof(guard_.secret, connection.hello, connection.challenge))) {
      admit(connection, hello);
      return;
    }
    refuse(connection, {Failure::Type::usage, fmt::format("{} has another secret than {}: give all the same "
                                                          "TRIREME_SECRET (or TRIREME_SECRET_FILE)",
                                                          hello.name(), name_)});
  }

  void admit(Connection& connection, const Hello& hello) {
    if (hello.rank == kVisitor) {
      welcome(connection);
      dismiss(connection);
      return;
    }
    std::string objection;
    if (hello.ranks != static_cast<std::uint32_t>(ranks_)) {
      objection = fmt::format(
          "rank {} ({}) was started as one of {} (WORLD_SIZE), but {} expects {}: all have to be told the same",
          hello.rank, hello.who, hello.ranks, name_, ranks_);
    } else if (hello.rank >= hello.ranks) {
      objection = fmt::format("{} says it is rank {}, which is not among {} ranks", hello.who, hello.rank, ranks_);
    } else {
      objection = find_seat(connection, static_cast<int>(hello.rank), hello.who);
    }
    if (!objection.empty()) refuse(connection, {Failure::Type::usage, objection});
  }

  // In the first meeting that the rank has not been to. Returns why there is none.
  std::string find_seat(Connection& connection, int rank, const std::string& who) {
    for (Session& session : sessions_) {
      const Meeting& meeting = session.meeting;
      if (meeting.presence(rank) == Meeting::Presence::awaited) {
        join(connection, session, rank, who);
        return {};
      }
      if (meeting.presence(rank) == Meeting::Presence::present) {
        return fmt::format("{} says it is rank {}, but {} is that already: give each process a RANK of its own", who,
                           rank, meeting.who(rank));
      }
    }
    if (!many_ && !sessions_.empty()) {
      drop(connection);  // It will try again, until the next server is there.
      return {};
    }
    if (sessions_.size() >= kMostMeetings) {
      return fmt::format("rank {} has come and gone {} times, while {}", rank, sessions_.size(),
                         sessions_.front().meeting.missing());
    }
    join(connection, sessions_.emplace_back(Session{.meeting = Meeting(ranks_)}), rank, who);
    return {};
  }

  void join(Connection& connection, Session& session, int rank, const std::string& who) {
    unlist(connection);
    session.meeting.join(rank, who);
    session.present.push_back(&connection);
    connection.session = &session;
    connection.rank = rank;
    connection.channel.reader.expect_at_most(kMostBlobBytes + sizeof(std::uint32_t));
    welcome(connection);
    if (guard_.encrypt) {
      connection.channel.encrypt(Tls::Role::server, channel_key(guard_.secret, connection.hello, connection.challenge));
    }
    fail_if_one_ended(session);
    if (session.meeting.failure()) send(connection, frame(Kind::failure, *session.meeting.failure()));
  }

  void welcome(Connection& connection) {
    send(connection,
         frame(Kind::welcome,
               guard_.secret ? as_text(server_proof(guard_.secret, connection.hello, connection.challenge)) : name_));
  }

  void take_blob(const Connection& connection, const std::string& body) {
    Session& session = *connection.session;
    Meeting& meeting = session.meeting;
    Cursor cursor(body);
    const std::uint32_t exchange = cursor.u32();
    if (meeting.failure()) return;  // It has been told.
    if (exchange != meeting.exchange()) {
      throw ProtocolError(fmt::format("it is in exchange {} while the others are in {}", exchange, meeting.exchange()));
    }
    meeting.give(connection.rank, std::string(cursor.rest()));
    if (meeting.failure()) {
      tell_failure(session);
    } else if (auto all = meeting.take_all()) {
      send_to_all(session, std::move(*all));
    }
  }

  // Says why.
  void refuse(Connection& connection, const Failure& failure) {
    if (connection.session != nullptr) {
      lose(connection, fmt::format("was sent away: {}", failure.text));
    } else {
      count_stranger(fmt::format("{} came to {}, but: {}", connection.from, name_, failure.text));
    }
    send(connection, frame(Kind::failure, failure));
    dismiss(connection);
  }

  // Lets the other side hang up first, lest what it has not read yet be lost.
  void dismiss(Connection& connection) {
    unlist(connection);
    list_as_stranger(connection);
    connection.dismissed = true;
    connection.channel.finish();
  }

  void lose(Connection& connection, const std::string& how) {
    part(connection, [&](Meeting& meeting) { meeting.lose(connection.rank, how); });
  }

  // Takes a rank out of its meeting in one way or another, and tells the others if that is the end of it.
  template <typename Way>
  void part(Connection& connection, Way way) {
    Session& session = *std::exchange(connection.session, nullptr);
    std::erase(session.present, &connection);
    const bool had_failed = session.meeting.failure().has_value();
    way(session.meeting);
    if (!had_failed && session.meeting.failure()) tell_failure(session);
    // The only meeting is kept, to know those who come again.
    if (many_ && session.meeting.over()) {
      sessions_.remove_if([&](const Session& other) { return &other == &session; });
    }
  }

  void tell_failure(Session& session) { send_to_all(session, frame(Kind::failure, *session.meeting.failure())); }

  void send_to_all(Session& session, std::string bytes) {
    const auto shared = std::make_shared<const std::string>(std::move(bytes));
    for (Connection* connection : session.present) {
      connection->channel.send(shared);
      watch_for_room(*connection);
    }
  }

  void send(Connection& connection, std::string bytes) {
    connection.channel.send(std::move(bytes));
    watch_for_room(connection);
  }

  void watch_for_room(Connection& connection) {
    const bool wanted = connection.channel.pending();
    if (std::exchange(connection.watched_for_room, wanted) == wanted) return;
    watch(EPOLL_CTL_MOD, connection.channel.socket(), connection.id, EPOLLIN | (wanted ? EPOLLOUT : 0U));
  }

  static constexpr std::uint64_t kWake = 0;
  static constexpr std::uint64_t kListener = 1;

  const int ranks_;
  const Guard guard_;
  Doorman doorman_;  // the thread's own
  std::atomic<int> strangers_count_ = 0;
  const bool many_;
  const std::string name_;
  Descriptor listener_;
  const std::uint16_t port_;
  Descriptor poll_;
  Descriptor wake_;

  std::atomic<bool> stops_{false};
  std::mutex mutex_;
  std::vector<std::pair<int, std::string>> told_;

  // The thread's own.
  std::map<int, std::string> ended_;  // ranks that will not come, and how they ended
  std::uint64_t next_id_ = 2;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::list<Connection*> strangers_;  // those that are no ranks, or no more; who has been here longest comes first
  std::string last_stranger_;
  std::vector<std::uint64_t> dropped_;
  std::list<Session> sessions_;  // the oldest first
  std::optional<Clock::time_point> stop_at_;
  std::optional<Clock::time_point> accept_at_;
  std::array<char, std::size_t{256} * 1024> buffer_{};

  std::thread thread_;
};

Server::Server(const std::string& host, std::uint16_t port, int ranks, Meetings meetings, const std::string& name,
               const Guard& guard) {
  check_limits(ranks);
  loop_ = std::make_unique<Loop>(host, port, ranks, meetings, name, guard);
}

Server::~Server() = default;

std::uint16_t Server::port() const { return loop_->port(); }

void Server::tell_ended(int rank, const std::string& how) { loop_->tell_ended(rank, how); }

int Server::strangers() const { return loop_->strangers(); }

std::unique_ptr<Server> serve(const Place& place, const Guard& guard) {
  if (!place.serve) return nullptr;
  const bool loopback = place.host == "localhost" || place.host == "::1" || place.host.starts_with("127.");
  try {
    return std::make_unique<Server>(loopback ? place.host : "", place.port, place.ranks, Meetings::one, "rank 0",
                                    guard);
  } catch (const PortInUse& error) {
    throw PortInUse(
        fmt::format("{}; all ranks have to be given the same MASTER_ADDR, the host of rank 0 ({}), and "
                    "MASTER_PORT, a port that is free there",
                    error.what(), place.host));
  }
}

}  // namespace trireme::rendezvous
