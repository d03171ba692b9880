// The event simulation behind simulate(): ranks that take steps, and messages that take ways.
//
// Two things keep it fast. A step whose moment is known is settled at once, even if that moment lies ahead; only what
// competes for a way becomes an event. And a rank holds just a window of steps, whose blocks are compared all at once.
#pragma once

#include "simulate/event_queue.h"
#include "simulate/tape.h"
#include "simulate/window.h"
#include "trireme/error.h"
#include "trireme/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme {

enum class Outcome {
  ended,
  short_sighted,  ///< nothing moves, but a rank might if it looked further ahead
  stuck,
};

/// kWords * 32 is how many steps a rank looks ahead.
template <int kWords>
class Engine {
 public:
  static constexpr int kWindow = Window<kWords>::kSize;

  Engine(const Network& network, const SimulateOptions& options, int blocks)
      : network_(network),
        options_(options),
        block_bytes_(static_cast<std::int64_t>(options.bytes / blocks)),
        longer_blocks_(static_cast<int>(options.bytes % blocks)),
        ticks_per_added_byte_(1e12 / options.reduce_rate),
        way_free_(network.ways()),
        leaving_(network.ways()) {}

  void reserve(int ranks) { ranks_.reserve(ranks); }

  void add_rank(const std::vector<Step>& steps) {
    ranks_.emplace_back(Tape(steps));
    total_steps_ += steps.size();
  }

  Outcome run() {
    if (options_.deliveries != nullptr) delivery_of_.resize(ranks_.size() * kWindow);
    for (int rank = 0; rank < count(); ++rank) issue(rank);
    for (std::uint64_t events = 0; !queue_.empty(); ++events) {
      const EventQueue::Event event = queue_.pop();
      now_ = event.time;
      fetch_ahead();
      if (event.what < 0) {
        ranks_[~event.what].wakes = false;
        issue(~event.what);
      } else if (event.what >= kLeave) {
        leave(event.what - kLeave);
      } else if (messages_[event.what].at == messages_[event.what].from) {
        --ranks_[messages_[event.what].from].beginning;
        begin(event.what);
      } else {
        move(event.what);
      }
      constexpr std::uint64_t kReports = 1 << 18;
      if (events % kReports == 0 && options_.progress) {
        options_.progress(static_cast<double>(result_.steps) / static_cast<double>(total_steps_));
      }
    }
    return outcome();
  }

  /// Meaningful once run() has ended.
  Simulated result() const {
    Simulated result = result_;
    result.time = last_;
    for (const Rank& rank : ranks_) {
      result.bytes_total += rank.sent;
      result.bytes_per_rank = std::max(result.bytes_per_rank, rank.sent);
      result.busiest_way_in = std::max(result.busiest_way_in, rank.taken);
    }
    return result;
  }

  /// A rank that has not come to its end, or -1.
  int first_unfinished() const {
    for (int rank = 0; rank < count(); ++rank) {
      if (!finished(ranks_[rank])) return rank;
    }
    return -1;
  }

 private:
  static constexpr double kEndOfTime = 3e18;  // picoseconds; three of them still fit the clock
  static constexpr int kLeave = 1 << 30;      // an event's number: a message below it, ~rank if negative, else a way

  struct Rank {
    explicit Rank(Tape steps) : tape(std::move(steps)) {}

    Window<kWords> window;
    bool wakes = false;  // an event to look again is on its way
    bool tape_ended = false;
    int early = 0;      // messages that came before the step that takes them
    int beginning = 0;  // sends whose moment is known and lies ahead, or is now but not yet come to
    Ticks adder_free{0};
    std::uint64_t sent = 0, taken = 0;
    Tape tape;
  };

  struct Message {
    int from, to;
    int at;  // the place where its first byte is
    int delivery;
    std::int64_t bytes;
    Ticks tail;           // when its last byte is there too
    int next;             // in the list of early messages of its channel
    std::uint32_t order;  // of its send in the sender's program
  };

  // Messages that wait at their sender for the same way, by order. They mostly come in that order already.
  class Leaving {
   public:
    struct Entry {
      std::uint32_t order;
      int message;
    };

    bool empty() const { return first_ == std::ssize(entries_); }

    void insert(Entry entry) {
      auto at = entries_.end();
      while (at != entries_.begin() + first_ && (at - 1)->order > entry.order) --at;
      entries_.insert(at, entry);
    }

    int take_first() {
      const int message = entries_[first_++].message;
      if (empty()) {
        entries_.clear();
        first_ = 0;
      }
      return message;
    }

   private:
    std::vector<Entry> entries_;
    std::ptrdiff_t first_ = 0;
  };

  struct Channel {
    int first, last;  // messages
  };

  int count() const { return static_cast<int>(ranks_.size()); }
  static bool finished(const Rank& rank) { return rank.tape_ended && rank.window.empty(); }

  std::int64_t bytes_of(int first, int end) const {
    return (end - first) * block_bytes_ + std::min(end, longer_blocks_) - std::min(first, longer_blocks_);
  }

  static Ticks duration(double ticks_per_byte, std::int64_t bytes) {
    const double ticks = ticks_per_byte * static_cast<double>(bytes);
    return ticks < kEndOfTime ? Ticks(std::llround(ticks)) : Ticks(std::llround(kEndOfTime));
  }

  static void check_clock(Ticks time) {
    if (time.count() >= std::llround(kEndOfTime))
      throw UsageError("it would take more than a month: beyond the simulator's clock");
  }

  // With tens of thousands of ranks every event finds its rank outside the cache; so ask for those of the next events.
  void fetch_ahead() const {
    constexpr int kMessageAhead = 8;
    constexpr int kRankAhead = 4;
    const EventQueue::Event* const later = queue_.ahead(kMessageAhead);
    if (later == nullptr) return;
    if (later->what >= 0 && later->what < kLeave) __builtin_prefetch(&messages_[later->what]);
    const int soon = queue_.ahead(kRankAhead)->what;
    if (soon < 0 || soon >= kLeave) return;
    const char* const rank = reinterpret_cast<const char*>(&ranks_[messages_[soon].to]);
    constexpr std::size_t kLine = 64;
    for (std::size_t offset = 0; offset < sizeof(Rank); offset += kLine) __builtin_prefetch(rank + offset);
  }

  // Takes steps off the tape while the window has room.
  void issue(int r) {
    Rank& rank = ranks_[r];
    rank.window.retire(now_);
    Step step{Action::send, 0, 0};
    while (!rank.window.full() && !rank.tape_ended) {
      if (!rank.tape.next(step)) {
        rank.tape_ended = true;
        break;
      }
      ++result_.steps;
      const int slot = rank.window.put(step, now_);
      if (step.action != Action::send && rank.early > 0) take_early(r, rank, slot);
      if (step.action == Action::send && !rank.window.waits(slot)) send(r, rank, slot);
      rank.window.retire(now_);
    }
    // A full window whose oldest step is settled but not yet past must be looked at again.
    if (rank.window.empty() || rank.wakes || rank.tape_ended) return;
    if (rank.window.done(rank.window.oldest())) {
      rank.wakes = true;
      queue_.push(rank.window.ready(rank.window.oldest()), ~r);
    }
  }

  void send(int r, Rank& rank, int slot) {
    const Window<kWords>& window = rank.window;
    const Ticks begins = window.ready(slot);
    const std::int64_t bytes = bytes_of(window.first(slot), window.end(slot));
    rank.sent += bytes;
    const int id = new_message();
    messages_[id] = {.from = r,
                     .to = window.peer(slot),
                     .at = r,
                     .delivery = -1,
                     .bytes = bytes,
                     .tail = begins,
                     .next = -1,
                     .order = window.order(slot)};
    if (options_.deliveries != nullptr) {
      messages_[id].delivery = static_cast<int>(options_.deliveries->size());
      const Run run(window.first(slot), window.end(slot) - window.first(slot));
      options_.deliveries->push_back({r, window.peer(slot), run, run, false, begins, {}, {}});
    }
    if (begins <= now_ && rank.beginning == 0) {
      begin(id);
    } else {
      ++rank.beginning;
      queue_.push(begins, id);
    }
    done(r, rank, slot, begins);
  }

  // A rank's messages leave in the order of its program as far as they are ready, not in the order they became so.
  void begin(int id) {
    const int way = network_.hop(messages_[id].from, messages_[id].to).way;
    Leaving& leaving = leaving_[way];
    if (way_free_[way] <= now_ && leaving.empty()) return move(id);
    if (leaving.empty()) queue_.push(way_free_[way], kLeave + way);
    leaving.insert({messages_[id].order, id});
  }

  void leave(int way) {
    Leaving& leaving = leaving_[way];
    if (way_free_[way] > now_) return queue_.push(way_free_[way], kLeave + way);
    move(leaving.take_first());
    if (!leaving.empty()) queue_.push(way_free_[way], kLeave + way);
  }

  // The message's first byte is at a place; if that is the end of its journey, so is its last.
  void move(int id) {
    Message& message = messages_[id];
    if (message.at == message.to) return arrive(id);
    const Network::Hop hop = network_.hop(message.at, message.to);
    const Ticks begins = std::max(now_, way_free_[hop.way]);
    const Ticks takes = duration(network_.ticks_per_byte(hop.way), message.bytes);
    // A way that makes up for its rest may be free again before now.
    way_free_[hop.way] = std::max(now_ - network_.burst(hop.way), way_free_[hop.way]) + takes;
    check_clock(way_free_[hop.way]);
    if (message.delivery >= 0 && message.at == message.from) (*options_.deliveries)[message.delivery].begins = begins;
    message.at = hop.at;
    message.tail = std::max({begins, way_free_[hop.way], message.tail}) + hop.latency;
    if (hop.at != message.to) {
      queue_.push(begins + hop.latency, id);
    } else if (network_.one_way_in()) {
      arrive(id);  // Nothing can come between: what comes later comes later by the same way.
    } else {
      queue_.push(message.tail, id);
    }
  }

  void arrive(int id) {
    const int r = messages_[id].to;
    Rank& rank = ranks_[r];
    rank.taken += messages_[id].bytes;
    const int slot = rank.window.oldest_waiting(messages_[id].from);
    if (slot < 0) {
      keep_early(rank, id);
    } else {
      take(r, rank, slot, id);
    }
    issue(r);
  }

  void take(int r, Rank& rank, int slot, int id) {
    const Message& message = messages_[id];
    rank.window.give_message(slot, message.tail);
    if (message.delivery >= 0) {
      Delivery& delivery = (*options_.deliveries)[message.delivery];
      delivery.taken = Run(rank.window.first(slot), rank.window.end(slot) - rank.window.first(slot));
      delivery.adds = rank.window.adds(slot);
      delivery.arrives = message.tail;
      delivery_of_[static_cast<std::size_t>(r) * kWindow + slot] = message.delivery;
    }
    free_messages_.push_back(id);
    if (!rank.window.waits(slot)) finish(r, rank, slot);
  }

  // A receive or add that has its message and whose turn it is.
  void finish(int r, Rank& rank, int slot) {
    Ticks ends = rank.window.ready(slot);
    if (rank.window.adds(slot)) {
      const std::int64_t bytes = bytes_of(rank.window.first(slot), rank.window.end(slot));
      ends = std::max(ends, rank.adder_free) + duration(ticks_per_added_byte_, bytes);
      rank.adder_free = ends;
    }
    if (options_.deliveries != nullptr) {
      (*options_.deliveries)[delivery_of_[static_cast<std::size_t>(r) * kWindow + slot]].ends = ends;
    }
    done(r, rank, slot, ends);
  }

  void done(int r, Rank& rank, int slot, Ticks time) {
    check_clock(time);
    last_ = std::max(last_, time);
    rank.window.finish(slot, time, [&](int other) {
      if (rank.window.sends(other)) {
        send(r, rank, other);
      } else if (rank.window.has_message(other)) {
        finish(r, rank, other);
      }
    });
  }

  int new_message() {
    if (free_messages_.empty()) {
      messages_.emplace_back();
      return static_cast<int>(messages_.size()) - 1;
    }
    const int id = free_messages_.back();
    free_messages_.pop_back();
    return id;
  }

  static std::uint64_t channel_key(int from, int to) {
    return static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to);
  }

  void keep_early(Rank& rank, int id) {
    const auto [entry, fresh] = early_.try_emplace(channel_key(messages_[id].from, messages_[id].to), Channel{id, id});
    if (!fresh) {
      messages_[entry->second.last].next = id;
      entry->second.last = id;
    }
    ++rank.early;
  }

  void take_early(int r, Rank& rank, int slot) {
    const auto entry = early_.find(channel_key(rank.window.peer(slot), r));
    if (entry == early_.end()) return;
    const int id = entry->second.first;
    entry->second.first = messages_[id].next;
    if (messages_[id].next < 0) early_.erase(entry);
    --rank.early;
    take(r, rank, slot, id);
  }

  Outcome outcome() {
    bool full = false;
    bool ended = true;
    now_ = std::max(now_, last_);
    for (Rank& rank : ranks_) {
      rank.window.retire(now_);
      ended = ended && finished(rank);
      full = full || (rank.window.full() && !rank.tape_ended);
    }
    if (ended) return Outcome::ended;
    return full ? Outcome::short_sighted : Outcome::stuck;
  }

  const Network& network_;
  const SimulateOptions& options_;
  const std::int64_t block_bytes_;
  const int longer_blocks_;  // that many blocks from the first on have a byte more
  const double ticks_per_added_byte_;

  Ticks now_{0};
  Ticks last_{0};
  EventQueue queue_;
  std::vector<Rank> ranks_;
  std::vector<Ticks> way_free_;
  std::vector<Leaving> leaving_;  // by way
  std::vector<Message> messages_;
  std::vector<int> free_messages_;
  std::unordered_map<std::uint64_t, Channel> early_;  // by channel
  std::vector<int> delivery_of_;                      // by slot, when deliveries are wanted
  std::uint64_t total_steps_ = 0;
  Simulated result_;
};

}  // namespace trireme
