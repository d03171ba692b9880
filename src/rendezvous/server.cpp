#include "rendezvous/server.h"

#include "base/signals.h"
#include "rendezvous/client.h"
#include "rendezvous/server_loop.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <system_error>
#include <utility>

namespace trireme::rendezvous {
namespace {

using namespace std::chrono_literals;

// A rank says hello as soon as it is connected.
constexpr auto kHelloPatience = 10s;
constexpr std::size_t kMostHelloBytes = 1024;
// More than these at once are no ranks: those that have been here longest are dropped.
constexpr std::size_t kMostStrangers = 4096;

// Nor may they take all descriptors of this process, which has other things to do.
std::size_t most_strangers(int ranks) {
  constexpr std::int64_t kOwnFiles = 128;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 4 * kMostStrangers) return kMostStrangers;
  const std::int64_t left = static_cast<std::int64_t>(limit.rlim_cur) - kOwnFiles - ranks;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(left / 2, 16, kMostStrangers));
}
constexpr auto kFarewellPatience = 5s;
// When the system has no descriptor for one more connection.
constexpr auto kAcceptPause = 100ms;
// How long somebody who asks the thread waits for its answer, which is there at once.
constexpr auto kAnswerPatience = 1s;

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

Server::Loop::Loop(const std::string& host, std::uint16_t port, int ranks, Meetings meetings, const std::string& name,
                   const Guard& guard)
    : ranks_(ranks),
      most_strangers_(most_strangers(ranks)),
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

Server::Loop::~Loop() {
  stops_ = true;
  wake();
  thread_.join();
}

void Server::Loop::tell_ended(int rank, const std::string& who, const std::string& how, Ran ran) {
  {
    const std::lock_guard lock(mutex_);
    told_.push_back({rank, who, how, ran});
  }
  wake();
}

std::vector<int> Server::Loop::awaited() {
  std::future<std::vector<int>> answer;
  {
    const std::lock_guard lock(mutex_);
    answer = questions_.emplace_back().get_future();
  }
  wake();
  // A thread that has failed answers nobody.
  try {
    if (answer.wait_for(kAnswerPatience) == std::future_status::ready) return answer.get();
  } catch (const std::future_error&) {
  }
  return {};
}

void Server::Loop::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

bool Server::Loop::watch(int operation, const Descriptor& descriptor, std::uint64_t id, std::uint32_t events) const {
  epoll_event event{.events = events, .data = {.u64 = id}};
  return ::epoll_ctl(poll_.get(), operation, descriptor.get(), &event) == 0;
}

// Should memory run out, all ranks find the connection closed.
void Server::Loop::run() noexcept {
  try {
    while (!done()) turn();
  } catch (const std::exception&) {
    listener_.close();
    connections_.clear();
  }
}

void Server::Loop::turn() {
  std::array<epoll_event, 256> events{};
  const int count = ::epoll_wait(poll_.get(), events.data(), events.size(), wait_time());
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[i].data.u64;
    if (id == kWake) {
      std::uint64_t times = 0;
      [[maybe_unused]] const ssize_t bytes = ::read(wake_.get(), &times, sizeof(times));
      take_ended();
      answer_questions();
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
  bury(now);
  if (accept_at_ && *accept_at_ <= now) {
    accept_at_.reset();
    watch(EPOLL_CTL_MOD, listener_, kListener, EPOLLIN);
  }
  for (const std::uint64_t id : dropped_) connections_.erase(id);
  dropped_.clear();
}

int Server::Loop::wait_time() const {
  auto next = Clock::time_point::max();
  if (stop_at_) next = std::min(next, *stop_at_);
  if (accept_at_) next = std::min(next, *accept_at_);
  if (!strangers_.empty()) next = std::min(next, strangers_.front()->patience_ends);
  if (!mourned_.empty()) next = std::min(next, mourned_.front()->patience_ends);
  return next == Clock::time_point::max() ? -1 : poll_time(next);
}

void Server::Loop::take_ended() {
  std::vector<Ended> told;
  {
    const std::lock_guard lock(mutex_);
    told.swap(told_);
  }
  for (Ended& ended : told) ended_.emplace(ended.rank, std::move(ended));
  for (Session& session : sessions_) fail_if_one_ended(session);
}

void Server::Loop::answer_questions() {
  std::vector<std::promise<std::vector<int>>> questions;
  {
    const std::lock_guard lock(mutex_);
    questions.swap(questions_);
  }
  if (questions.empty()) return;
  const std::vector<int> awaited = find_awaited();
  for (auto& question : questions) question.set_value(awaited);
}

void Server::Loop::begin_to_stop() {
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

void Server::Loop::accept_some() {
  constexpr int kAtOnce = 256;
  for (int i = 0; i < kAtOnce && listener_; ++i) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      const bool none_left = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (none_left) make_room();
      if (none_left || errno == EAGAIN) return;
      continue;  // That one has gone again.
    }
    if (strangers_.size() >= most_strangers_) {
      turn_away(*strangers_.front(), "there are too many at once that have not said who they are");
    }
    prepare(socket);
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
void Server::Loop::make_room() {
  if (!strangers_.empty()) {
    turn_away(*strangers_.front(), "this process has no descriptors left: raise 'ulimit -n'");
    return;
  }
  watch(EPOLL_CTL_MOD, listener_, kListener, 0);
  accept_at_ = Clock::now() + kAcceptPause;
}

void Server::Loop::list_as_stranger(Connection& connection) {
  connection.patience_ends = Clock::now() + kHelloPatience;
  connection.listed = strangers_.insert(strangers_.end(), &connection);
}

void Server::Loop::unlist(Connection& connection) {
  if (connection.listed) strangers_.erase(*connection.listed);
  connection.listed.reset();
}

// The connection is closed now; its memory goes at the end of the turn.
void Server::Loop::drop(Connection& connection) {
  unlist(connection);
  connection.channel.close();
  dropped_.push_back(connection.id);
}

// One that did not prove to be a rank. Those that were dismissed have been counted, or were welcome.
void Server::Loop::turn_away(Connection& connection, const std::string& why) {
  if (!connection.dismissed) count_stranger(fmt::format("{} came to {}, but {}", connection.from, name_, why));
  drop(connection);
}

void Server::Loop::count_stranger(const std::string& what) {
  doorman_.turn_away(what);
  strangers_count_ = doorman_.count();
  last_stranger_ = what;
}

void Server::Loop::serve(Connection& connection, std::uint32_t events) {
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
void Server::Loop::hear(Connection& connection) {
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
    mourn(connection,
          why.empty() ? "hung up without a goodbye: it ended or was killed" : fmt::format("is lost: {}", why));
    return;
  }
  turn_away(connection, "it hung up before it had said who it is");
}

// Lets the other side hang up first, lest what it has not read yet be lost.
void Server::Loop::dismiss(Connection& connection) {
  unlist(connection);
  list_as_stranger(connection);
  connection.dismissed = true;
  connection.channel.finish();
}

void Server::Loop::send_to_all(Session& session, std::string bytes) {
  const auto shared = std::make_shared<const std::string>(std::move(bytes));
  for (Connection* connection : session.present) {
    connection->channel.send(shared);
    watch_for_room(*connection);
  }
}

void Server::Loop::send(Connection& connection, std::string bytes) {
  connection.channel.send(std::move(bytes));
  watch_for_room(connection);
}

void Server::Loop::watch_for_room(Connection& connection) {
  const bool wanted = connection.channel.pending();
  if (std::exchange(connection.watched_for_room, wanted) == wanted) return;
  watch(EPOLL_CTL_MOD, connection.channel.socket(), connection.id, EPOLLIN | (wanted ? EPOLLOUT : 0U));
}

Server::Server(const std::string& host, std::uint16_t port, int ranks, Meetings meetings, const std::string& name,
               const Guard& guard) {
  check_limits(ranks);
  loop_ = std::make_unique<Loop>(host, port, ranks, meetings, name, guard);
}

Server::~Server() = default;

std::uint16_t Server::port() const { return loop_->port(); }

void Server::tell_ended(int rank, const std::string& who, const std::string& how, Ran ran) {
  loop_->tell_ended(rank, who, how, ran);
}

std::vector<int> Server::culprits() const { return loop_->culprits(); }

std::vector<int> Server::awaited() const { return loop_->awaited(); }

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
