// What the engine does when something is wrong: ranks that disagree, or that are gone. Those that do not come are
// asked for in questions.cpp.
//
// A rank that finds trouble tells all others, lets that go out, and closes its transports; only then do its operations
// end with the error, so that this rank doesn't touch the caller's memory afterwards. Nor do its neighbours, if they
// answer within kFarewell; one that was stopped meanwhile may still write to a window what it had been asked for.
//
// Each says once what it found, or heard, first. Several may find different things, as when a host goes with all of its
// ranks: everybody takes the gravest of what all have said, so that all name the same culprit, and leaves on the board
// who that is.
#include "communicator/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <tuple>

namespace trireme {
namespace {

using namespace std::chrono_literals;
using transport::Envelope;

/// How long the news of an error may take to go out, and how often is looked meanwhile who is gone; then connections
/// have a moment to close.
constexpr auto kFarewell = 500ms;
constexpr auto kClosing = 50ms;
constexpr auto kLook = 10ms;

/// How long is waited for what only who started a rank knows that is gone.
constexpr auto kNews = 300ms;

/// Of what several ranks have found: the gravest, and of two of a kind the one that says how a process ended, or else
/// that says more.
bool is_better(const std::string& news, const std::string& than) {
  const auto is_vague = [](const std::string& text) {
    return text.find("was killed by signal") == std::string::npos &&
           text.find("exited with status") == std::string::npos;
  };
  return std::tuple(news[0], is_vague(news), than.size(), news) <
         std::tuple(than[0], is_vague(than), news.size(), than);
}

}  // namespace

std::exception_ptr Engine::make_error(ErrorKind kind, const std::string& message) {
  switch (kind) {
    case ErrorKind::usage: return std::make_exception_ptr(UsageError(message));
    case ErrorKind::peer: return std::make_exception_ptr(PeerError(message));
    case ErrorKind::timeout: return std::make_exception_ptr(TimeoutError(message));
    case ErrorKind::system: return std::make_exception_ptr(SystemError(message));
    default: return std::make_exception_ptr(ProtocolError(message));
  }
}

void Engine::fail(ErrorKind kind, const std::string& message, const std::vector<int>& blamed) {
  spread(fmt::format("{}{}{}{}", static_cast<int>(kind), message, '\0', fmt::join(blamed, " ")));
}

void Engine::spread(const std::string& news) {
  if (failing_ || failed_) return;
  failing_ = true;
  news_ = news;
  const std::string text = news_;
  for (int peer = 0; peer < parts_.ranks; ++peer) {
    if (peer != parts_.rank && gone_[peer].empty()) tell(peer, ControlKind::aborts, text);
  }
}

// As fail() makes them.
bool Engine::is_news(const std::string& text) {
  const std::size_t end = text.find('\0');
  return end != std::string::npos && end > 1 && text[0] >= '0' && text[0] <= '0' + static_cast<int>(ErrorKind::timeout);
}

std::vector<int> Engine::blamed_by(const std::string& news) const {
  std::vector<int> blamed;
  std::istringstream numbers(news.substr(std::min(news.find('\0'), news.size() - 1) + 1));
  for (int rank = 0; numbers >> rank;) {
    if (rank >= 0 && rank < parts_.ranks) blamed.push_back(rank);
  }
  return blamed;
}

// From the top of the loop, never from within a transport.
void Engine::shut_down() {
  const auto until = Clock::now() + kFarewell;
  auto look_at = Clock::now() + kLook;
  const auto all_sent = [&] {
    return std::all_of(controls_.begin(), controls_.end(),
                       [&](const auto& control) { return control->sent || !gone_[control->peer].empty(); });
  };
  // Those that are at work answer with the same. They don't touch what they have on loan from here any more then; and
  // what they sent before has been read: the system would drop the news if it had to throw that away.
  const auto all_know = [&] {
    for (int peer = 0; peer < parts_.ranks; ++peer) {
      if (peer != parts_.rank && gone_[peer].empty() && !knows_[peer]) return false;
    }
    return true;
  };
  while ((!all_sent() || !all_know()) && Clock::now() < until) {
    bool moved = host_ && host_->progress();
    if (tcp_) moved |= tcp_->progress();
    if (!moved) std::this_thread::yield();
    if (host_ && Clock::now() >= look_at) {
      look_at = Clock::now() + kLook;
      host_->check_processes();
    }
  }
  error_ = make_error(static_cast<ErrorKind>(news_[0] - '0'), news_.substr(1, news_.find('\0') - 1));
  parts_.board->blame(parts_.rank, blamed_by(news_));
  if (host_) host_->close();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
  if (tcp_) tcp_->close_within(std::max(left, std::chrono::milliseconds(kClosing)));
  tcp_.reset();
  failing_ = false;
  failed_ = true;
  ready_.clear();
  early_.clear();
  early_begin_ = 0;
  take_submitted();
  // Their messages may still be in the hands of peers.
  buried_ = active_;
  for (const auto& operation : buried_) {
    operation->error = error_;
    complete(*operation);
  }
}

void Engine::tell(int peer, ControlKind kind, std::string text) {
  while (!controls_.empty() && controls_.front()->sent) controls_.pop_front();
  Control& control = *controls_.emplace_back(std::make_unique<Control>());
  control.text = std::move(text);
  control.piece = {reinterpret_cast<std::byte*>(control.text.data()), control.text.size()};
  control.pieces = {&control.piece, 1};
  control.peer = peer;
  control.urgent = kind == ControlKind::aborts;
  control.envelope.context = 0;
  control.envelope.index = static_cast<std::uint32_t>(kind);
  route(peer).post(control);
}

void Engine::take_control(int peer, const Envelope& envelope, const transport::Incoming& incoming) {
  std::string text;
  if (incoming.data != nullptr) {
    text.assign(reinterpret_cast<const char*>(incoming.data), incoming.bytes);
  } else {
    for (const transport::Piece& piece : incoming.lent) {
      text.append(reinterpret_cast<const char*>(piece.data), piece.bytes);
    }
  }
  if (envelope.index == static_cast<std::uint32_t>(ControlKind::aborts)) {
    if (!is_news(text)) {
      fail(ErrorKind::protocol, parts_.names[peer] + " sent news that make no sense", {peer});
      return;
    }
    knows_[peer] = true;
    if (failing_) news_ = std::min(news_, text, is_better);
    spread(text);
    return;
  }
  if (envelope.index == static_cast<std::uint32_t>(ControlKind::is_elsewhere)) {
    take_where(peer, text);
    return;
  }
  take_question(peer, envelope, text);
}

bool Engine::agrees(const Operation& operation, int peer, const Envelope& envelope) {
  if (std::equal(envelope.call, envelope.call + 2, operation.packed)) return true;
  Call theirs = Call::unpack(envelope.call);
  if (operation.call.kind != CallKind::collective) {
    theirs.kind = operation.call.kind == CallKind::send ? CallKind::receive : CallKind::send;
    theirs.root = static_cast<std::uint64_t>(operation.group->rank);
  }
  disagree(operation.sequence, peer, theirs, operation.call);
  return false;
}

void Engine::disagree(std::uint32_t sequence, int peer, const Call& theirs, const Call& mine) {
  const std::string which = mine.kind == CallKind::collective
                                ? fmt::format("operation {} of their communicator", sequence)
                                : fmt::format("message {} between them", sequence);
  // The same words on both sides, whoever finds it.
  const int me = parts_.rank;
  const auto say = [&](int rank, const Call& call) {
    return fmt::format("{} called {}", parts_.names[rank], call.describe());
  };
  const bool first = me < peer;
  const bool in_counts = mine.shape != 0 && theirs.shape != 0 && mine.describe() == theirs.describe();
  fail(ErrorKind::usage,
       fmt::format("ranks disagree: {}, but {}{}, as {}", first ? say(me, mine) : say(peer, theirs),
                   first ? say(peer, theirs) : say(me, mine), in_counts ? " with other counts" : "", which),
       {std::min(me, peer), std::max(me, peer)});
}

void Engine::lost(int peer, const std::string& why) {
  if (!gone_[peer].empty()) return;
  gone_[peer] = why;
  for (const auto& operation : active_) check_gone(*operation);
}

void Engine::garbled(int peer, const std::string& why) {
  if (!gone_[peer].empty()) return;
  gone_[peer] = why;
  fail(ErrorKind::protocol, fmt::format("{} {}", parts_.names[peer], why), {peer});
}

void Engine::closed(int peer) {
  if (gone_[peer].empty()) left_[peer] = true;
  lost(peer, "it closed its communicator: it made fewer calls than others, or failed");
}

// How it ended is known best to who started it, and a moment later than that it did.
std::string Engine::why_gone(int peer) const {
  const auto until = Clock::now() + kNews;
  while (!left_[peer] && parts_.board->watched()) {
    const std::string fate = parts_.board->fate(peer);
    if (!fate.empty()) return "it " + fate;
    if (Clock::now() >= until) break;
    std::this_thread::sleep_for(1ms);
  }
  return gone_[peer];
}

// Whether something that is still to be done takes that rank.
bool Engine::needs(const Operation& operation, int peer) const {
  const int rank = operation.group->rank_of[peer];
  if (rank < 0) return false;
  const Plan& plan = *operation.plan;
  const auto active = std::count_if(operation.slots.begin(), operation.slots.begin() + operation.slots_used,
                                    [](const Slot& slot) { return slot.segment >= 0; });
  if (active < operation.segments_left) {
    const bool sends = std::any_of(plan.nodes.begin(), plan.nodes.end(),
                                   [&](const Node& node) { return node.kind == NodeKind::send && node.peer == rank; });
    const auto missing = plan.arrivals[rank].size() * static_cast<std::size_t>(operation.segments_left - active);
    const auto came = std::count_if(operation.early.begin(), operation.early.end(),
                                    [&](const Early& early) { return early.peer == peer; });
    if (sends || static_cast<std::size_t>(came) < missing) return true;
  }
  for (int i = 0; i < operation.slots_used; ++i) {
    const Slot& slot = operation.slots[i];
    if (slot.segment < 0) continue;
    for (const Address& address : plan.arrivals[rank]) {
      const Node& node = plan.nodes[address.node];
      const NodeState& state = slot.nodes[address.node];
      const bool here = slot.sources[node.first_source + address.source].here || address.source < state.folded;
      if (state.missing > 0 && !here && !state.settled) return true;
    }
    for (std::size_t number = 0; number < plan.nodes.size(); ++number) {
      const Node& node = plan.nodes[number];
      if (node.kind == NodeKind::send && node.peer == rank && !slot.nodes[number].ended) return true;
    }
  }
  return false;
}

void Engine::check_gone(const Operation& operation) {
  if (failing_) return;
  for (const int peer : operation.group->members) {
    if (gone_[peer].empty() || !needs(operation, peer)) continue;
    fail(ErrorKind::peer,
         fmt::format("{} is gone ({}): {} can't be finished", parts_.names[peer], why_gone(peer),
                     operation.call.describe()),
         {peer});
    return;
  }
}

}  // namespace trireme
