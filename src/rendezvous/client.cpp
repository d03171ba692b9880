#include "rendezvous/client.h"

#include "rendezvous/channel.h"
#include "rendezvous/notice.h"
#include "rendezvous/socket.h"
#include "rendezvous/wire.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <poll.h>
#include <thread>
#include <utility>

namespace trireme::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 5ms;
constexpr auto kLongestPause = 200ms;
// A host that does not answer at all gets no more of the patience at a time, so that its other addresses get some, too.
constexpr auto kConnectPatience = 3s;
// The server answers at once, if at all.
constexpr auto kAskPatience = 1s;
// Who serves the rendezvous finds it at once, unless its address is another host's. Names may take longer to be known.
constexpr auto kOwnPatience = 15s;
// From the end of a process's connections to that of its locks.
constexpr auto kLockPatience = 100ms;

std::string in_seconds(std::chrono::duration<double> time) { return fmt::format("{:.3g} s", time.count()); }

// The server was there, and then not: another may come.
class HungUp : public Error {
 public:
  using Error::Error;
};

}  // namespace

class Client::Connection {
 public:
  Connection(Place place, std::chrono::milliseconds patience, Guard guard)
      : place_(std::move(place)), guard_(std::move(guard)), where_(describe(place_)) {
    const auto start = Clock::now();
    const auto deadline = start + patience;
    auto pause = std::chrono::milliseconds(kFirstPause);
    while (true) {
      const std::string why = try_to_meet(deadline);
      if (why.empty()) break;
      const bool astray = place_.serve && known_since_ && Clock::now() >= *known_since_ + kOwnPatience;
      if (astray || Clock::now() + pause >= deadline) {
        throw TimeoutError(fmt::format("rank {} did not find the rendezvous at {} within {}; the last try: {}. {}",
                                       place_.rank, where_, in_seconds(astray ? kOwnPatience : patience), why,
                                       advice()));
      }
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::milliseconds>(pause * 2, kLongestPause);
    }
  }

  Connection(Descriptor socket, Guard guard, Clock::time_point deadline)
      : place_{.rank = -1, .ranks = 1, .host = {}},
        guard_(std::move(guard)),
        where_(peer_number(socket)),
        channel_(std::move(socket)) {
    say_hello(deadline);
  }

  ~Connection() {
    try {
      channel_->send(frame(Kind::goodbye, ""));
      channel_->finish();
      // What came and was not read would reset the connection, and the goodbye might be lost.
      while (!channel_->receive(buffer_).bytes.empty()) continue;
    } catch (const std::exception&) {  // Then the server hears of it by the connection's end.
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::vector<std::string> exchange(std::string_view mine, Deadline deadline) {
    if (failure_) failure_->raise();
    if (mine.size() > kMostBlobBytes) {
      throw UsageError(fmt::format("{} bytes are too many for an exchange of the rendezvous: {} are the most",
                                   mine.size(), kMostBlobBytes));
    }
    try {
      const auto start = Clock::now();
      channel_->send(frame(Kind::blob, exchange_, mine));
      auto answer = next_frame(deadline);
      if (!answer) {
        channel_->send(frame(Kind::ask, exchange_, ""));
        answer = next_frame(Clock::now() + kAskPatience);
      }
      if (!answer || answer->kind == Kind::missing) give_up(answer, Clock::now() - start);
      std::vector<std::string> blobs = read_blobs(body_of(*answer, Kind::blobs), exchange_, place_.ranks);
      ++exchange_;
      return blobs;
    } catch (const HungUp& error) {
      take_notice_away();
      fail({Failure::Type::peer, fmt::format("{}, which ran the rendezvous at {}, {} in exchange {}", server_, where_,
                                             error.what(), exchange_)});
    } catch (const ProtocolError& error) {
      fail({Failure::Type::protocol, error.what()});
    }
  }

  const Descriptor& socket() const { return channel_->socket(); }
  const Guard& guard() const { return guard_; }

 private:
  bool is_visitor() const { return place_.rank < 0; }

  static std::string describe(const Place& place) {
    return place.notice.empty() ? format_host_and_port(place.host, place.port) : place.host;
  }

  // What to do about it if the server is not found.
  const char* advice() const {
    if (place_.started_by == "trireme run") {
      return "Check that 'trireme run' is still there, and that this process can reach that address";
    }
    if (!known_since_ && place_.notice.empty()) {
      return "MASTER_ADDR has to be a name or an address of the host of rank 0 that this host knows, too";
    }
    if (place_.serve && place_.notice.empty()) {
      return "This is rank 0, where the others are to find it: MASTER_ADDR has to be a name or an address of this host";
    }
    if (!place_.notice.empty()) {
      return "Check that rank 0 runs, and on this host; for ranks on several, set MASTER_ADDR and MASTER_PORT, the "
             "same for all";
    }
    return "Check that rank 0 runs, that MASTER_ADDR and MASTER_PORT are the same for all ranks, and that no firewall "
           "is in between";
  }

  // Where the server listens, as far as that is known by now, and by what secret.
  std::uint16_t find_server() {
    if (place_.notice.empty()) return place_.port;
    if (const auto posted = read_notice(place_.notice)) {
      if (posted->secret && !has_own_secret_) guard_.secret = posted->secret;
      return posted->port;
    }
    throw SystemError(fmt::format("rank 0 has not put its notice at {}", place_.notice));
  }

  // If the server was killed, it could not do so itself. Its lock may go a moment later than its connections.
  void take_notice_away() const {
    if (place_.notice.empty()) return;
    try {
      const auto deadline = Clock::now() + kLockPatience;
      while (read_notice(place_.notice) && Clock::now() < deadline) std::this_thread::sleep_for(kFirstPause);
    } catch (const Error&) {  // Then it is not this job's.
    }
  }

  // Why not; empty: the server has said welcome.
  std::string try_to_meet(Clock::time_point deadline) {
    std::string why;
    try {
      const std::vector<Address> addresses = resolve(place_.host, find_server());
      if (!known_since_) known_since_ = Clock::now();
      for (const Address& address : addresses) {
        try {
          const auto patience = std::clamp<Clock::duration>(deadline - Clock::now(), 100ms, kConnectPatience);
          channel_.emplace(connect_to(address, Clock::now() + patience));
          unread_ = {};
          say_hello(deadline);
          return {};
        } catch (const SystemError& error) {
          why = error.what();
        } catch (const HungUp& error) {
          why = fmt::format("somebody took the call there, but {} before saying who it is", error.what());
        }
      }
    } catch (const SystemError& error) {  // Names may become known later, too.
      why = error.what();
    }
    return why;
  }

  void say_hello(Clock::time_point deadline) {
    const std::string hello = body(Hello{.guard = guard_bits(guard_),
                                         .nonce = fresh_nonce(),
                                         .rank = is_visitor() ? kVisitor : static_cast<std::uint32_t>(place_.rank),
                                         .ranks = static_cast<std::uint32_t>(place_.ranks),
                                         .who = this_process()});
    channel_->send(frame(Kind::hello, hello));
    try {
      guard_.secret ? prove(hello, deadline) : welcome(hear_answer(Kind::welcome, deadline));
    } catch (const ProtocolError& error) {
      throw ProtocolError(fmt::format("what listens at {} is no rendezvous of Trireme: {}{}", where_, error.what(),
                                      is_visitor() ? "" : fmt::format(". {}", advice())));
    }
    channel_->reader.expect_at_most(sizeof(std::uint32_t) * 2 +
                                    static_cast<std::size_t>(place_.ranks) * (sizeof(std::uint64_t) + kMostBlobBytes));
  }

  // Both sides prove the secret: this one first, so that the server can say what it thinks of it.
  void prove(const std::string& hello, Clock::time_point deadline) {
    const std::string challenge = hear_answer(Kind::challenge, deadline);
    server_ = read_challenge(challenge).who;
    channel_->send(frame(Kind::proof, as_text(client_proof(guard_.secret, hello, challenge))));
    const std::string answer = hear_answer(Kind::welcome, deadline);
    if (!same_digest(read_digest(answer), server_proof(guard_.secret, hello, challenge))) {
      throw UsageError(
          fmt::format("{}, which runs the rendezvous at {}, has another secret than {}: give all ranks the same "
                      "TRIREME_SECRET (or TRIREME_SECRET_FILE)",
                      server_, where_, is_visitor() ? "this host" : fmt::format("rank {}", place_.rank)));
    }
    if (guard_.encrypt && !is_visitor()) encrypt(channel_key(guard_.secret, hello, challenge), deadline);
  }

  void encrypt(const Digest& key, Clock::time_point deadline) {
    channel_->encrypt(Tls::Role::client, key);
    try {
      while (!channel_->shake()) {
        if (!wait_for(channel_->socket(), POLLIN, deadline)) throw SystemError("it does not exchange keys");
      }
    } catch (const PeerError& error) {
      throw PeerError(fmt::format("rank {} can't encrypt what it says to {}, which runs the rendezvous at {}: {}",
                                  place_.rank, server_, where_, error.what()));
    }
  }

  void welcome(const std::string& who) { server_ = printable(who); }

  std::string hear_answer(Kind kind, Clock::time_point deadline) {
    const auto answer = next_frame(deadline);
    if (!answer) throw SystemError("somebody listens there who does not answer as a rendezvous of Trireme would");
    return body_of(*answer, kind);
  }

  // Nothing, if none is whole by the deadline.
  std::optional<FrameReader::Frame> next_frame(Clock::time_point deadline) {
    while (true) {
      while (!unread_.empty()) {
        auto frame = channel_->reader.take(unread_);
        if (frame && !is_outdated(*frame)) return frame;
      }
      const auto events = static_cast<short>(POLLIN | (channel_->pending() ? POLLOUT : 0));
      if (!channel_->unread() && !wait_for(channel_->socket(), events, deadline)) return std::nullopt;
      channel_->flush();
      const auto [bytes, ended, why] = channel_->receive(buffer_);
      if (ended) throw HungUp(why.empty() ? "hung up" : fmt::format("is lost ({})", why));
      unread_ = bytes;
    }
  }

  // What was asked at a deadline, and answered after the blobs had come after all.
  bool is_outdated(const FrameReader::Frame& frame) const {
    return frame.kind == Kind::missing && Cursor(frame.body).u32() != exchange_;
  }

  // The body of a frame that has to be of this kind. A failure is raised as what it stands for.
  std::string body_of(const FrameReader::Frame& frame, Kind kind) {
    if (frame.kind == Kind::failure) fail(read_failure(frame.body));
    if (frame.kind != kind) throw ProtocolError("the answer is of another kind than asked for");
    return frame.body;
  }

  // Says who is missing, as far as the server answered, also to the others.
  [[noreturn]] void give_up(const std::optional<FrameReader::Frame>& answer, Clock::duration waited) {
    std::string missing = "and the server does not say who is missing";
    if (answer) {
      Cursor cursor(answer->body);
      cursor.u32();
      missing = printable(cursor.rest());
    }
    const Failure failure{
        Failure::Type::timeout,
        fmt::format("exchange {} of the rendezvous at {} was not complete after {}: {}. See what they do (gdb -p PID), "
                    "or allow more time (InitOptions::patience)",
                    exchange_, where_, in_seconds(waited), missing)};
    channel_->send(frame(Kind::gave_up, failure));
    fail(failure);
  }

  [[noreturn]] void fail(Failure failure) {
    failure_ = std::move(failure);
    failure_->raise();
  }

  const Place place_;
  Guard guard_;
  const bool has_own_secret_ = static_cast<bool>(guard_.secret);
  const std::string where_;
  std::string server_;
  std::optional<Clock::time_point> known_since_;  // its address
  std::optional<Channel> channel_;
  std::string_view unread_;  // in the buffer
  std::array<char, std::size_t{64} * 1024> buffer_{};
  std::uint32_t exchange_ = 0;
  std::optional<Failure> failure_;
};

Client::Client(const Place& place, std::chrono::milliseconds patience, const Guard& guard)
    : connection_(std::make_unique<Connection>(place, patience, guard)) {}

Client::~Client() = default;

void Client::visit(Descriptor socket, const Guard& guard, Deadline deadline) {
  Connection(std::move(socket), guard, deadline);
}

std::vector<std::string> Client::exchange(std::string_view mine, Deadline deadline) {
  return connection_->exchange(mine, deadline);
}

const Guard& Client::guard() const { return connection_->guard(); }

std::string Client::local_address() const { return local_number(connection_->socket()); }

std::string Client::server_address() const { return peer_number(connection_->socket()); }

}  // namespace trireme::rendezvous
