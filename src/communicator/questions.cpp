// What ranks ask each other while they wait, and what is said of those that do not come.
//
// A rank that has waited for a while asks the others what they do, which finds those that disagree without a message
// between them. It asks whom it is connected with or needs: somebody needs each one that keeps others waiting, and a rank
// that is late is no reason to connect everybody with everybody. Only before its deadline it asks all. A rank that can't
// answer, since it was stopped or is in its own code, is spoken for by those of its host, which see its records.
#include "communicator/engine.h"
#include "rendezvous/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace trireme {
namespace {

using namespace std::chrono_literals;
using transport::Envelope;

/// How long is waited for what only who started the ranks knows of those on other hosts.
constexpr auto kAnswers = 1s;

/// How long before a deadline the others are asked for the last time.
constexpr auto kLastAnswers = 2s;

/// What a rank did last, as others are told. Clocks of hosts differ, so it is said how long ago that was.
struct Where {
  /// The last: as has_ended, but it is not known when since then.
  enum class State : std::uint32_t { begun_nothing, is_in, has_ended, has_ended_since };

  std::int32_t rank = 0;
  State state = State::begun_nothing;
  std::uint32_t context = 0;
  std::uint32_t sequence = 0;
  std::uint64_t call[2] = {};
  std::int64_t begun_ago = 0;  ///< in nanoseconds
  std::int64_t ended_ago = 0;
};

std::chrono::nanoseconds now() { return Clock::now().time_since_epoch(); }

/// When that was, by this host's clock, whatever somebody says.
std::chrono::nanoseconds time_before(std::int64_t ago) {
  constexpr auto kLongest = std::chrono::nanoseconds(std::chrono::hours(24 * 365));
  return now() - std::clamp(std::chrono::nanoseconds(ago), 0ns, kLongest);
}

}  // namespace

void Engine::take_question(int peer, const Envelope& envelope, const std::string& text) {
  Asked asked{.peer = peer, .context = 0, .sequence = 0, .call = {}};
  std::uint64_t words[2] = {};
  if (text.size() != sizeof asked.context + sizeof asked.sequence + sizeof words) {
    fail(ErrorKind::protocol, parts_.names[peer] + " sent a question that makes no sense", {peer});
    return;
  }
  std::memcpy(&asked.context, text.data(), sizeof asked.context);
  std::memcpy(&asked.sequence, text.data() + sizeof asked.context, sizeof asked.sequence);
  std::memcpy(words, text.data() + sizeof asked.context + sizeof asked.sequence, sizeof words);
  asked.call = Call::unpack(words);
  if (envelope.index == static_cast<std::uint32_t>(ControlKind::is_there)) {
    if (Operation* operation = find(asked.context, asked.sequence, peer)) operation->there.push_back(peer);
    return;
  }
  if (compare(asked)) {
    answer(asked);
  } else {
    if (asked.call.kind == CallKind::collective) asked_.push_back(asked);
    if (parts_.board->last(parts_.rank)) say_where(peer, parts_.rank);
  }
  speak_for_neighbours(asked);
}

// To one that waits for `rank`, this one or one of its host, which is at something else.
void Engine::say_where(int peer, int rank) {
  if (failing_ || !gone_[peer].empty()) return;
  Where where{.rank = rank};
  if (const auto last = parts_.board->last(rank)) {
    where.state = !last->ended  ? Where::State::is_in
                  : last->timed ? Where::State::has_ended
                                : Where::State::has_ended_since;
    where.context = last->context;
    where.sequence = last->sequence;
    last->call.pack(where.call);
    where.begun_ago = (now() - last->begun).count();
    where.ended_ago = (now() - last->ended.value_or(now())).count();
  }
  tell(peer, ControlKind::is_elsewhere, std::string(reinterpret_cast<const char*>(&where), sizeof where));
}

// Of ranks that `trireme run` has started, it says what they did last.
void Engine::speak_for_neighbours(const Asked& asked) {
  if (parts_.board->watched() || routes_[asked.peer] != tcp_.get()) return;
  std::vector<int> members;
  {
    const std::lock_guard lock(groups_mutex_);
    if (const Group* const group = group_of(asked.context & ~kMessages)) members = group->members;
  }
  for (const int rank : members) {
    if (rank == parts_.rank || routes_[rank] == tcp_.get()) continue;
    const auto last = parts_.board->last(rank);
    const bool is_in_it = last && asked.call.kind == CallKind::collective && last->context == asked.context &&
                          last->sequence == asked.sequence;
    if (!is_in_it && parts_.board->knows(rank, now())) say_where(asked.peer, rank);
  }
}

void Engine::take_where(int peer, const std::string& text) {
  Where where;
  if (text.size() == sizeof where) std::memcpy(&where, text.data(), sizeof where);
  if (text.size() != sizeof where || where.rank < 0 || where.rank >= parts_.ranks ||
      where.state > Where::State::has_ended_since) {
    fail(ErrorKind::protocol, parts_.names[peer] + " sent an answer that makes no sense", {peer});
    return;
  }
  Heard& heard = elsewhere_[where.rank];
  heard.answered |= where.rank == peer;
  heard.known = true;
  heard.last.reset();
  if (where.state == Where::State::begun_nothing) return;
  heard.last = Record{.context = where.context,
                      .sequence = where.sequence,
                      .call = Call::unpack(where.call),
                      .begun = time_before(where.begun_ago),
                      .timed = where.state != Where::State::has_ended_since,
                      .ended = {}};
  if (where.state != Where::State::is_in) heard.last->ended = time_before(where.ended_ago);
}

std::string Engine::packed(std::uint32_t context, std::uint32_t sequence, const std::uint64_t (&call)[2]) {
  std::string text(sizeof context + sizeof sequence + sizeof call, '\0');
  std::memcpy(text.data(), &context, sizeof context);
  std::memcpy(text.data() + sizeof context, &sequence, sizeof sequence);
  std::memcpy(text.data() + sizeof context + sizeof sequence, call, sizeof call);
  return text;
}

// Who waits knows then that it is not this rank that is missing.
void Engine::answer(const Asked& asked) {
  if (failing_ || !gone_[asked.peer].empty()) return;
  std::uint64_t words[2] = {};
  asked.call.pack(words);
  tell(asked.peer, ControlKind::is_there, packed(asked.context, asked.sequence, words));
}

void Engine::ask_others(Operation& operation) {
  // Ever more rarely, and once more shortly before the deadline: what is said then should be true then.
  const auto now = Clock::now();
  const auto last = std::max(operation.started + operation.patience / 3, operation.deadline - kLastAnswers);
  const bool last_time = now >= last;
  const auto next = now + std::max<Clock::duration>(now - operation.started, 1s);
  operation.asks_at = last_time ? operation.deadline : std::min(next, last);
  operation.there.clear();
  const std::string text = packed(operation.context, operation.sequence, operation.packed);
  const bool collective = operation.call.kind == CallKind::collective;
  const Group& group = *operation.group;
  for (int rank = 0; rank < group.ranks(); ++rank) {
    const int peer = group.members[rank];
    const auto other_end = static_cast<int>(operation.call.root);
    // Those of its host may have to speak for it.
    if (!collective && rank != other_end && (!last_time || group.hosts[rank] != group.hosts[other_end])) continue;
    elsewhere_[peer] = {};
    if (peer == parts_.rank || !gone_[peer].empty()) continue;
    const bool near = routes_[peer] != tcp_.get() || tcp_->is_connected(peer) || needs(operation, peer);
    if (near || last_time) tell(peer, ControlKind::asks, text);
  }
}

void Engine::remember(const Operation& operation) {
  if (operation.call.kind != CallKind::collective) return;
  Group& group = *operation.group;
  group.past[operation.sequence % Group::kRemembered] = {operation.sequence, true, operation.call};
  for (std::size_t i = 0; i < asked_.size();) {
    const Asked asked = asked_[i];
    if (asked.context != operation.context || asked.sequence != operation.sequence) {
      ++i;
      continue;
    }
    asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(i));
    if (compare(asked)) answer(asked);
  }
}

// Fails if this rank did something else where another does that. False if it has not come there yet: time will tell.
bool Engine::compare(const Asked& asked) {
  Group::Past past;
  bool member = false;
  {
    const std::lock_guard lock(groups_mutex_);  // so that the group stays
    const Group* group = group_of(asked.context);
    if (group == nullptr || asked.call.kind != CallKind::collective) return false;
    past = group->past[asked.sequence % Group::kRemembered];
    member = group->rank_of[asked.peer] >= 0;
  }
  if (!member) {
    fail(ErrorKind::protocol, parts_.names[asked.peer] + " sent a message of a communicator that it is not in",
         {asked.peer});
    return true;
  }
  if (!past.known || past.sequence < asked.sequence) return false;
  if (past.sequence == asked.sequence && !(past.call == asked.call)) {
    disagree(asked.sequence, asked.peer, asked.call, past.call);
  }
  return true;
}

// Those that this rank needs a message from may be waiting for others themselves: then it is who did not even answer.
std::vector<int> Engine::missing_in(const Operation& operation) const {
  const auto is_there = [&](int peer) {
    return std::find(operation.there.begin(), operation.there.end(), peer) != operation.there.end();
  };
  std::vector<int> missing, absent, silent;
  for (const int peer : operation.group->members) {
    if (peer == parts_.rank) continue;
    if (needs(operation, peer)) missing.push_back(peer);
    if (!is_there(peer)) absent.push_back(peer);
    if (!is_there(peer) && !elsewhere_[peer].answered) silent.push_back(peer);
  }
  const bool some_answered = silent.size() < operation.group->members.size() - 1;
  const bool collective = operation.call.kind == CallKind::collective;
  if (collective && some_answered && !absent.empty()) missing = silent.empty() ? absent : silent;
  return missing;
}

// Its number, and in which communicator that is, unless all ranks are in it.
std::string Engine::place_of(const Operation& operation) const {
  const bool collective = operation.call.kind == CallKind::collective;
  std::string number = fmt::format("{} {}", collective ? "operation" : "message", operation.sequence);
  if (operation.group->ranks() == parts_.ranks) return number;
  std::vector<int> members = operation.group->members;
  std::sort(members.begin(), members.end());
  return fmt::format("{} of the communicator of {}", number, rendezvous::list_ranks(members));
}

// What ranks of other hosts did last, even if they were stopped, is known to who started them. The operation may end
// meanwhile.
void Engine::look_at_other_hosts(const Operation& operation) {
  const auto asked = Clock::now();
  if (!parts_.board->ask()) return;
  const auto is_known = [&](int peer) { return parts_.board->knows(peer, asked.time_since_epoch()); };
  while (!std::ranges::all_of(operation.group->members, is_known) && Clock::now() < asked + kAnswers) {
    std::this_thread::sleep_for(1ms);
    if (host_) host_->progress();
    if (tcp_) tcp_->progress();
    if (failing_ || operation.is_done()) return;
  }
}

std::string Engine::waiting_for(const Operation& operation) const {
  std::vector<std::string> missing;
  for (const int peer : missing_in(operation)) missing.push_back(parts_.names[peer]);
  const auto waited = std::chrono::duration<double>(Clock::now() - operation.started).count();
  return fmt::format(
      "{} waited {:.1f} s in {} ({}) for {}; {}. See where {} (gdb -p PID on that host), or allow more time "
      "(CallOptions::deadline, InitOptions::patience)",
      parts_.names[parts_.rank], waited, operation.call.describe(), place_of(operation),
      missing.empty() ? "what it sent to be taken" : fmt::format("{}", fmt::join(missing, ", ")),
      what_others_do(operation), missing.size() == 1 ? "it is" : "they are");
}

// Those that are in the same operation only by their number, as there may be thousands.
std::string Engine::what_others_do(const Operation& operation) const {
  if (operation.call.kind != CallKind::collective) {
    const int peer = operation.group->members[operation.call.root];
    const std::string did = did_last(operation, peer);
    return fmt::format("{} {}", parts_.names[peer], did.empty() ? "has called what belongs to it" : did);
  }
  constexpr std::size_t kMost = 8;
  std::vector<std::string> others;
  int in_it = 1;
  for (const int peer : operation.group->members) {
    if (peer == parts_.rank) continue;
    const std::string did = did_last(operation, peer);
    if (did.empty()) {
      ++in_it;
    } else if (others.size() < kMost) {
      others.push_back(fmt::format("{} {}", parts_.names[peer], did));
    } else if (others.size() == kMost) {
      others.emplace_back("and more");
    }
  }
  return fmt::format("did all ranks call it? {} of {} ranks are in it{}{}", in_it, operation.group->ranks(),
                     others.empty() ? "" : "; ", fmt::join(others, "; "));
}

// What a rank did last, as far as is known here; empty: it is in that operation.
std::string Engine::did_last(const Operation& operation, int peer) const {
  if (std::find(operation.there.begin(), operation.there.end(), peer) != operation.there.end()) return {};
  const Heard& heard = elsewhere_[peer];
  const bool on_board = parts_.board->knows(peer, operation.started.time_since_epoch());
  const auto last = on_board ? parts_.board->last(peer) : heard.last;
  if (!last) return on_board || heard.known ? "has begun nothing" : "has not answered";
  const bool other_end =
      operation.call.kind == CallKind::collective ||
      (last->call.kind != operation.call.kind && last->call.root == static_cast<std::uint64_t>(operation.group->rank));
  if (last->context == operation.context && last->sequence == operation.sequence && other_end) return {};
  const auto seconds_since = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(now() - time).count();
  };
  if (last->ended) {
    const std::string_view at_most = last->timed ? "" : "less than ";
    return fmt::format("ended {} {}{:.1f} s ago", last->describe(), at_most, seconds_since(*last->ended));
  }
  if (!on_board) return fmt::format("was last in {}", last->describe());  // and may have ended it since
  return fmt::format("is in {} since {:.1f} s", last->describe(), seconds_since(last->begun));
}

}  // namespace trireme
