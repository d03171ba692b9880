// What ranks and strangers say to a rendezvous server: who is let in, and what becomes of the meetings.
#include "rendezvous/client.h"
#include "rendezvous/server_loop.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trireme::rendezvous {
namespace {

using namespace std::chrono_literals;

// Ranks that come and go without ever meeting the others begin no meetings beyond these.
constexpr std::size_t kMostMeetings = 64;
// What is known of a rank's end after this is of no use any more to those that wait.
constexpr auto kNewsPatience = 500ms;

}  // namespace

void Server::Loop::handle(Connection& connection, const FrameReader::Frame& message) {
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
void Server::Loop::hear_stranger(Connection& connection, const FrameReader::Frame& message) {
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
std::string Server::Loop::object_to(const Hello& hello) const {
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

void Server::Loop::hear_proof(Connection& connection, const Digest& proof) {
  const Hello hello = read_hello(connection.hello);
  if (same_digest(proof, client_proof(guard_.secret, connection.hello, connection.challenge))) {
    admit(connection, hello);
    return;
  }
  refuse(connection, {Failure::Type::usage, fmt::format("{} has another secret than {}: give all the same "
                                                        "TRIREME_SECRET (or TRIREME_SECRET_FILE)",
                                                        hello.name(), name_)});
}

void Server::Loop::admit(Connection& connection, const Hello& hello) {
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
  if (objection.empty()) return;
  const Failure failure{Failure::Type::usage, objection};
  refuse(connection, failure);
  if (!many_ && hello.rank < hello.ranks) contradict(failure);  // Or it is no rank.
}

// Nobody but they themselves knows of ranks that were started one by one: those that have come would wait in vain.
void Server::Loop::contradict(const Failure& failure) {
  contradiction_ = failure;
  for (Session& session : sessions_) {
    if (session.meeting.failure()) continue;
    session.meeting.fail(failure);
    tell_failure(session);
  }
}

// In the first meeting that the rank has not been to. Returns why there is none.
std::string Server::Loop::find_seat(Connection& connection, int rank, const std::string& who) {
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

void Server::Loop::join(Connection& connection, Session& session, int rank, const std::string& who) {
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
  if (contradiction_) session.meeting.fail(*contradiction_);
  if (session.meeting.failure()) send(connection, frame(Kind::failure, *session.meeting.failure()));
}

void Server::Loop::welcome(Connection& connection) {
  send(connection,
       frame(Kind::welcome,
             guard_.secret ? as_text(server_proof(guard_.secret, connection.hello, connection.challenge)) : name_));
}

void Server::Loop::take_blob(const Connection& connection, const std::string& body) {
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
void Server::Loop::refuse(Connection& connection, const Failure& failure) {
  if (connection.session != nullptr) {
    lose(connection, fmt::format("was sent away: {}", failure.text));
  } else {
    count_stranger(fmt::format("{} came to {}, but: {}", connection.from, name_, failure.text));
  }
  send(connection, frame(Kind::failure, failure));
  dismiss(connection);
}

// Who started the ranks knows how one ended, and says so a moment after that one hung up.
void Server::Loop::mourn(Connection& connection, const std::string& how) {
  connection.channel.close();
  connection.lost = how;
  connection.patience_ends = Clock::now();
  if (many_) connection.patience_ends += kNewsPatience;
  mourned_.push_back(&connection);
}

void Server::Loop::bury(Clock::time_point now) {
  std::erase_if(mourned_, [&](Connection* connection) {
    const auto ended = ended_.find(connection->rank);
    if (ended == ended_.end() && connection->patience_ends > now) return false;
    lose(*connection, ended == ended_.end() ? connection->lost : ended->second.how);
    drop(*connection);
    return true;
  });
}

void Server::Loop::lose(Connection& connection, const std::string& how) {
  part(connection, [&](Meeting& meeting) { meeting.lose(connection.rank, how); });
}

// Takes a rank out of its meeting in one way or another, and tells the others if that is the end of it.
template <typename Way>
void Server::Loop::part(Connection& connection, Way way) {
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

// A rank that has been there and lost its connection is told of by that.
void Server::Loop::fail_if_one_ended(Session& session) {
  if (session.meeting.failure()) return;
  for (const auto& [rank, ended] : ended_) {
    if (session.meeting.presence(rank) != Meeting::Presence::awaited) continue;
    std::string after;
    if (ended.ran == Ran::yes) {
      after = fmt::format(" before it came to the rendezvous: {}",
                          ended.how == "exited with status 0" ? "does it call init()?" : "its own lines say why");
    }
    session.meeting.fail({Failure::Type::peer, fmt::format("rank {} ({}) {}{}", rank, ended.who, ended.how, after)},
                         {rank});
    tell_failure(session);
    return;
  }
}

std::vector<int> Server::Loop::find_awaited() const {
  for (const Session& session : sessions_) {
    if (session.present.empty() || session.meeting.failure()) continue;
    auto [awaited, idle] = session.meeting.absent();
    if (!awaited.empty()) return awaited;
    if (idle.size() < session.present.size()) return idle;
  }
  return {};
}

// Who is missing may be among those that were turned away.
std::string Server::Loop::missing(const Session& session) const {
  std::string text = session.meeting.missing();
  if (strangers_count_ == 1) text += fmt::format("; one was turned away: {}", last_stranger_);
  if (strangers_count_ > 1)
    text += fmt::format("; {} were turned away, the last: {}", doorman_.count(), last_stranger_);
  return text;
}

}  // namespace trireme::rendezvous
