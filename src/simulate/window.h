// The steps that a simulated rank has in hand: which wait for which, and which message belongs to which.
#pragma once

#include "trireme/network.h"
#include "trireme/program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

namespace trireme {

/// A ring of kWords * 32 slots in program order, from the oldest unfinished step on. Arrays rather than a struct a
/// slot, since a new step is compared with all of them at once.
template <int kWords>
class Window {
 public:
  static constexpr int kSize = 32 * kWords;

  Window() {
    std::fill(std::begin(first_), std::end(first_), std::numeric_limits<int>::max());
    std::fill(std::begin(end_), std::end(end_), kNone);
    std::fill(std::begin(key_), std::end(key_), kNone);
  }

  bool empty() const { return head_ == tail_; }
  bool full() const { return tail_ - head_ == kSize; }
  int oldest() const { return static_cast<int>(head_ % kSize); }

  int first(int slot) const { return first_[slot]; }
  int end(int slot) const { return end_[slot]; }
  bool sends(int slot) const { return (state_[slot] & kSend) != 0; }
  bool adds(int slot) const { return (state_[slot] & kAdd) != 0; }
  bool done(int slot) const { return (state_[slot] & kDone) != 0; }
  bool waits(int slot) const { return waits_[slot] > 0; }
  bool has_message(int slot) const { return (state_[slot] & kHasMessage) != 0; }

  /// The peer of a send, or of a receive or add that has no message yet.
  int peer(int slot) const { return sends(slot) ? ~key_[slot] : key_[slot]; }

  /// When all that the step waited for was done; once it is done itself, when that was.
  Ticks ready(int slot) const { return ready_[slot]; }

  /// The step's number in the program.
  std::uint32_t order(int slot) const { return head_ + (static_cast<std::uint32_t>(slot) - head_) % kSize; }

  /// Lets go of the oldest steps as far as they are done by now.
  void retire(Ticks now) {
    while (!empty() && done(oldest()) && ready_[oldest()] <= now) {
      first_[oldest()] = std::numeric_limits<int>::max();
      end_[oldest()] = kNone;
      key_[oldest()] = kNone;
      ++head_;
    }
  }

  /// Takes a step in hand, and returns its slot. The window must not be full.
  int put(const Step& step, Ticks now) {
    const int slot = static_cast<int>(tail_++ % kSize);
    const bool sends = step.action == Action::send;
    ready_[slot] = wait_for_earlier(slot, step, sends, now);
    first_[slot] = step.run.first;
    end_[slot] = step.run.end();
    key_[slot] = sends ? ~step.peer : step.peer;
    state_[slot] = sends ? kSend : step.action == Action::add ? kAdd : 0;
    const std::uint32_t bit = std::uint32_t{1} << (slot % 32);
    writes_[slot / 32] = sends ? writes_[slot / 32] & ~bit : writes_[slot / 32] | bit;
    return slot;
  }

  /// The oldest receive or add that waits for a message from that rank, or -1.
  int oldest_waiting(int from) const {
    int wrapped = -1;  // the first slot before the head: younger than all from the head on
    for (int word = 0; word < kWords; ++word) {
      const std::uint32_t waiting = slots_with_key(word, from);
      if (waiting == 0) continue;
      const int begin = std::clamp(oldest() - word * 32, 0, 32);
      const std::uint32_t from_head = begin == 32 ? 0 : waiting >> begin << begin;
      if (from_head != 0) return word * 32 + std::countr_zero(from_head);
      if (wrapped < 0) wrapped = word * 32 + std::countr_zero(waiting);
    }
    return wrapped;
  }

  void give_message(int slot, Ticks arrives) {
    key_[slot] = kNone;
    state_[slot] |= kHasMessage;
    ready_[slot] = std::max(ready_[slot], arrives);
  }

  /// The step is done at that time, which may lie ahead. Calls released(slot) for each that waited for it last.
  template <class Released>
  void finish(int slot, Ticks time, const Released& released) {
    ready_[slot] = time;
    state_[slot] |= kDone;
    for (int word = 0; word < kWords; ++word) {
      std::uint32_t dependents = std::exchange(dependents_[slot][word], 0);
      for (; dependents != 0; dependents &= dependents - 1) {
        const int other = word * 32 + std::countr_zero(dependents);
        ready_[other] = std::max(ready_[other], time);
        if (--waits_[other] == 0) released(other);
      }
    }
  }

 private:
  static constexpr int kNone = std::numeric_limits<int>::min();
  static constexpr std::uint8_t kSend = 1;
  static constexpr std::uint8_t kAdd = 2;
  static constexpr std::uint8_t kHasMessage = 4;
  static constexpr std::uint8_t kDone = 8;
  using Mask = std::array<std::uint32_t, kWords>;

  // Bit i of a word if the condition holds, without a branch, so that the compiler turns the loops round it into SIMD.
  static std::uint32_t bit_if(int condition, int i) {
    static constexpr std::array<std::uint32_t, 32> kBits = [] {
      std::array<std::uint32_t, 32> bits{};
      for (int bit = 0; bit < 32; ++bit) bits[bit] = std::uint32_t{1} << bit;
      return bits;
    }();
    return static_cast<std::uint32_t>(-condition) & kBits[i];
  }

  std::uint32_t slots_with_key(int word, int key) const {
    const int* const keys = key_ + word * 32;
    std::uint32_t slots = 0;
    for (int i = 0; i < 32; ++i) slots |= bit_if(keys[i] == key, i);
    return slots;
  }

  // Counts the earlier steps that are not done yet, and returns when those that are were done.
  Ticks wait_for_earlier(int slot, const Step& step, bool sends, Ticks now) {
    Ticks ready = now;
    const int first = step.run.first;
    const int end = step.run.end();
    bool channel_used = false;
    for (int word = 0; word < kWords; ++word) {
      const int* const firsts = first_ + word * 32;
      const int* const ends = end_ + word * 32;
      std::uint32_t earlier = 0;
      for (int i = 0; i < 32; ++i) earlier |= bit_if((firsts[i] < end) & (first < ends[i]), i);
      if (sends) {
        earlier &= writes_[word];
        channel_used = channel_used || slots_with_key(word, ~step.peer) != 0;
      }
      for (; earlier != 0; earlier &= earlier - 1) {
        const int other = word * 32 + std::countr_zero(earlier);
        if (done(other)) {
          ready = std::max(ready, ready_[other]);
        } else {
          wait_for(slot, other);
        }
      }
    }
    // Of the channel's sends the last one is enough: it waits for those before it.
    if (channel_used) {
      int other = slot;
      do {
        other = (other + kSize - 1) % kSize;
      } while (key_[other] != ~step.peer);
      done(other) ? void(ready = std::max(ready, ready_[other])) : wait_for(slot, other);
    }
    return ready;
  }

  void wait_for(int slot, int other) {
    dependents_[other][slot / 32] |= std::uint32_t{1} << (slot % 32);
    ++waits_[slot];
  }

  int first_[kSize], end_[kSize];  // blocks; a slot that is free has none
  int key_[kSize];                 // ~peer of a send, peer of a receive without its message
  std::int16_t waits_[kSize]{};    // earlier steps that must be done before this one
  Ticks ready_[kSize]{};
  Mask dependents_[kSize]{};  // slots that wait for this one
  Mask writes_{};             // slots with a receive or add
  std::uint8_t state_[kSize]{};
  std::uint32_t head_ = 0, tail_ = 0;
};

}  // namespace trireme
