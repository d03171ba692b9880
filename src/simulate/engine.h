// The event simulation behind simulate(): ranks that take steps, and messages that take ways.
//
// Two things keep it fast. A step whose moment is known is settled at once, even if that moment lies ahead; only what
// competes for a way becomes an event. And a rank holds just a window of steps, whose blocks are compared all at once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simulate/event_queue.h"
#include "simulate/tape.h"
#include "trireme/simulate.h"

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
  static constexpr int kWindow = 32 * kWords;

  Engine(const Network& network, const SimulateOptions& options, int blocks)
      : network_(network),
        options_(options),
        block_bytes_(options.bytes / blocks),
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
  static constexpr int kNone = std::numeric_limits<int>::min();
  static constexpr int kLeave = 1 << 30;  // an event's number: a message below it, ~rank if negative, else a way
  static constexpr int kNoBlock = std::numeric_limits<int>::max();

  enum State : std::uint8_t { kSend = 1, kAdd = 2, kArrived = 4, kDone = 8 };

  using Mask = std::array<std::uint32_t, kWords>;

  // The steps in hand are a ring of slots in program order, from the oldest unfinished one on; arrays rather than a
  // struct a slot, since a new step is compared with all of them at once.
  struct Rank {
    explicit Rank(Tape steps) : tape(std::move(steps)) {
      std::fill(std::begin(first), std::end(first), kNoBlock);
      std::fill(std::begin(end), std::end(end), kNone);
      std::fill(std::begin(key), std::end(key), kNone);
    }

    int first[kWindow], end[kWindow];  // blocks; a slot that is free has none
    int key[kWindow];                  // ~peer of a send that waits, peer of a receive without its message
    std::int16_t waits[kWindow]{};     // earlier steps that must be done before this one
    Ticks ready[kWindow]{};            // when all that it waited for was done; once done, when it was itself
    Mask dependents[kWindow]{};        // slots that wait for this one
    Mask writes{};                     // slots with a receive or add
    std::uint8_t state[kWindow]{};
    bool wakes = false;  // an event to look again is on its way
    bool tape_ended = false;
    std::uint32_t head = 0, tail = 0;
    int early = 0;  // messages that came before the step that takes them
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
  static bool finished(const Rank& rank) { return rank.tape_ended && rank.head == rank.tail; }

  std::int64_t bytes_of(int first, int end) const {
    return (end - first) * block_bytes_ + std::min(end, longer_blocks_) - std::min(first, longer_blocks_);
  }

  static Ticks duration(double ticks_per_byte, std::int64_t bytes) {
    return Ticks(static_cast<std::int64_t>(ticks_per_byte * static_cast<double>(bytes) + 0.5));
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
    const Message& message = messages_[soon];
    __builtin_prefetch(&way_free_[message.at == message.from ? message.from : message.to]);
    const char* const rank = reinterpret_cast<const char*>(&ranks_[message.to]);
    constexpr std::size_t kLine = 64;
    for (std::size_t offset = 0; offset < offsetof(Rank, tape); offset += kLine) __builtin_prefetch(rank + offset);
  }

  void retire(Rank& rank) {
    while (rank.head != rank.tail) {
      const std::uint32_t slot = rank.head % kWindow;
      if ((rank.state[slot] & kDone) == 0 || rank.ready[slot] > now_) return;
      rank.first[slot] = kNoBlock;
      rank.end[slot] = kNone;
      ++rank.head;
    }
  }

  // Takes steps off the tape while the window has room.
  void issue(int r) {
    Rank& rank = ranks_[r];
    retire(rank);
    Step step{Action::send, 0, 0};
    while (rank.tail - rank.head < kWindow && !rank.tape_ended) {
      if (!rank.tape.next(step)) {
        rank.tape_ended = true;
        break;
      }
      place(r, rank, step);
      retire(rank);
    }
    // A full window whose oldest step is settled but not yet past must be looked at again.
    if (rank.head == rank.tail || rank.wakes || rank.tape_ended) return;
    const std::uint32_t oldest = rank.head % kWindow;
    if ((rank.state[oldest] & kDone) != 0) {
      rank.wakes = true;
      queue_.push(rank.ready[oldest], ~r);
    }
  }

  void place(int r, Rank& rank, const Step& step) {
    ++result_.steps;
    const int slot = static_cast<int>(rank.tail++ % kWindow);
    const bool sends = step.action == Action::send;
    const Ticks ready = wait_for_earlier(rank, slot, step, sends);
    const std::uint32_t bit = std::uint32_t{1} << (slot % 32);
    rank.first[slot] = step.run.first;
    rank.end[slot] = step.run.end();
    rank.ready[slot] = ready;
    rank.key[slot] = sends ? ~step.peer : step.peer;
    rank.state[slot] = sends ? kSend : step.action == Action::add ? kAdd : 0;
    if (sends) {
      rank.writes[slot / 32] &= ~bit;
      if (rank.waits[slot] == 0) send(r, rank, slot);
      return;
    }
    rank.writes[slot / 32] |= bit;
    if (rank.early > 0) take_early(r, rank, slot);
  }

  // Bit i of a word if the condition holds, without a branch, so that the compiler turns the loops round it into SIMD.
  static std::uint32_t bit_if(int condition, int i) {
    static constexpr std::array<std::uint32_t, 32> kBits = [] {
      std::array<std::uint32_t, 32> bits{};
      for (int bit = 0; bit < 32; ++bit) bits[bit] = std::uint32_t{1} << bit;
      return bits;
    }();
    return static_cast<std::uint32_t>(-condition) & kBits[i];
  }

  static std::uint32_t slots_with_key(const Rank& rank, int word, int key) {
    const int* const keys = rank.key + word * 32;
    std::uint32_t slots = 0;
    for (int i = 0; i < 32; ++i) slots |= bit_if(keys[i] == key, i);
    return slots;
  }

  // Counts the earlier steps that are not done yet, and returns when those that are were done.
  Ticks wait_for_earlier(Rank& rank, int slot, const Step& step, bool sends) {
    Ticks ready = now_;
    const int first = step.run.first;
    const int end = step.run.end();
    bool channel_waits = false;
    for (int word = 0; word < kWords; ++word) {
      const int* const firsts = rank.first + word * 32;
      const int* const ends = rank.end + word * 32;
      std::uint32_t earlier = 0;
      for (int i = 0; i < 32; ++i) earlier |= bit_if((firsts[i] < end) & (first < ends[i]), i);
      if (sends) {
        earlier &= rank.writes[word];
        channel_waits = channel_waits || slots_with_key(rank, word, ~step.peer) != 0;
      }
      for (; earlier != 0; earlier &= earlier - 1) {
        const int other = word * 32 + std::countr_zero(earlier);
        if ((rank.state[other] & kDone) != 0) {
          ready = std::max(ready, rank.ready[other]);
        } else {
          wait_for(rank, slot, other);
        }
      }
    }
    // The last send of the channel that waits is enough: it waits for those before it.
    if (channel_waits) {
      int other = slot;
      do {
        other = (other + kWindow - 1) % kWindow;
      } while (rank.key[other] != ~step.peer);
      wait_for(rank, slot, other);
    }
    return ready;
  }

  static void wait_for(Rank& rank, int slot, int other) {
    rank.dependents[other][slot / 32] |= std::uint32_t{1} << (slot % 32);
    ++rank.waits[slot];
  }

  void send(int r, Rank& rank, int slot) {
    const int peer = ~rank.key[slot];
    const int id = new_message();
    const std::int64_t bytes = bytes_of(rank.first[slot], rank.end[slot]);
    rank.sent += bytes;
    messages_[id] = {.from = r,
                     .to = peer,
                     .at = r,
                     .delivery = -1,
                     .bytes = bytes,
                     .tail = rank.ready[slot],
                     .next = -1,
                     .order = 0};
    if (options_.deliveries != nullptr) {
      messages_[id].delivery = static_cast<int>(options_.deliveries->size());
      const Run run(rank.first[slot], rank.end[slot] - rank.first[slot]);
      options_.deliveries->push_back({r, peer, run, run, false, rank.ready[slot], {}, {}});
    }
    messages_[id].order = rank.head + (slot - rank.head) % kWindow;
    if (rank.ready[slot] <= now_) {
      move(id);
    } else {
      queue_.push(rank.ready[slot], id);
    }
    done(r, rank, slot, rank.ready[slot]);
  }

  // The message's first byte is at a place; if that is the end of its journey, so is its last.
  void move(int id) {
    Message& message = messages_[id];
    if (message.at == message.to) return arrive(id);
    const Network::Hop hop = network_.hop(message.at, message.to);
    if (message.at == message.from && way_free_[hop.way] > now_) return queue_up(id, hop.way);
    const Ticks begins = std::max(now_, way_free_[hop.way]);
    const Ticks takes = duration(network_.ticks_per_byte(hop.way), message.bytes);
    way_free_[hop.way] = begins + takes;
    if (message.delivery >= 0 && message.at == message.from) (*options_.deliveries)[message.delivery].begins = begins;
    message.at = hop.at;
    message.tail = std::max(begins + takes, message.tail) + hop.latency;
    if (hop.at != message.to) {
      queue_.push(begins + hop.latency, id);
    } else if (network_.one_way_in()) {
      arrive(id);  // Nothing can come between: what comes later comes later by the same way.
    } else {
      queue_.push(message.tail, id);
    }
  }

  // A rank's messages leave in the order of its program as far as they are ready, not in the order they became so.
  void queue_up(int id, int way) {
    Leaving& leaving = leaving_[way];
    if (leaving.empty()) queue_.push(way_free_[way], kLeave + way);
    leaving.insert({messages_[id].order, id});
  }

  void leave(int way) {
    Leaving& leaving = leaving_[way];
    if (way_free_[way] > now_) return queue_.push(way_free_[way], kLeave + way);
    move(leaving.take_first());
    if (!leaving.empty()) queue_.push(way_free_[way], kLeave + way);
  }

  void arrive(int id) {
    const int r = messages_[id].to;
    Rank& rank = ranks_[r];
    rank.taken += messages_[id].bytes;
    const int slot = oldest_waiting(rank, messages_[id].from);
    if (slot < 0) {
      keep_early(rank, id);
    } else {
      take(r, rank, slot, id);
    }
    issue(r);
  }

  static int oldest_waiting(const Rank& rank, int from) {
    const int head = static_cast<int>(rank.head % kWindow);
    int wrapped = -1;  // the first slot before the head: younger than all from the head on
    for (int word = 0; word < kWords; ++word) {
      const std::uint32_t waiting = slots_with_key(rank, word, from);
      if (waiting == 0) continue;
      const int begin = std::clamp(head - word * 32, 0, 32);
      const std::uint32_t from_head = begin == 32 ? 0 : waiting >> begin << begin;
      if (from_head != 0) return word * 32 + std::countr_zero(from_head);
      if (wrapped < 0) wrapped = word * 32 + std::countr_zero(waiting);
    }
    return wrapped;
  }

  void take(int r, Rank& rank, int slot, int id) {
    const Message& message = messages_[id];
    rank.key[slot] = kNone;
    rank.state[slot] |= kArrived;
    rank.ready[slot] = std::max(rank.ready[slot], message.tail);
    if (message.delivery >= 0) {
      Delivery& delivery = (*options_.deliveries)[message.delivery];
      delivery.taken.first = rank.first[slot];
      delivery.adds = (rank.state[slot] & kAdd) != 0;
      delivery.arrives = message.tail;
      delivery_of_[static_cast<std::size_t>(r) * kWindow + slot] = message.delivery;
    }
    free_messages_.push_back(id);
    if (rank.waits[slot] == 0) finish(r, rank, slot);
  }

  // A receive or add that has its message and whose turn it is.
  void finish(int r, Rank& rank, int slot) {
    Ticks ends = rank.ready[slot];
    if ((rank.state[slot] & kAdd) != 0) {
      ends =
          std::max(ends, rank.adder_free) + duration(ticks_per_added_byte_, bytes_of(rank.first[slot], rank.end[slot]));
      rank.adder_free = ends;
    }
    if (options_.deliveries != nullptr) {
      (*options_.deliveries)[delivery_of_[static_cast<std::size_t>(r) * kWindow + slot]].ends = ends;
    }
    done(r, rank, slot, ends);
  }

  void done(int r, Rank& rank, int slot, Ticks time) {
    last_ = std::max(last_, time);
    rank.key[slot] = kNone;
    rank.ready[slot] = time;
    rank.state[slot] |= kDone;
    for (int word = 0; word < kWords; ++word) {
      std::uint32_t dependents = std::exchange(rank.dependents[slot][word], 0);
      for (; dependents != 0; dependents &= dependents - 1) {
        const int other = word * 32 + std::countr_zero(dependents);
        rank.ready[other] = std::max(rank.ready[other], time);
        if (--rank.waits[other] > 0) continue;
        if ((rank.state[other] & kSend) != 0) send(r, rank, other);
        if ((rank.state[other] & kArrived) != 0) finish(r, rank, other);
      }
    }
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
    const auto entry = early_.find(channel_key(rank.key[slot], r));
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
      retire(rank);
      ended = ended && finished(rank);
      full = full || (rank.tail - rank.head == kWindow && !rank.tape_ended);
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
