// One rank of a test: an inbox that sends messages whose bytes say where they come from, and checks what arrives.
//
// Byte i of a message depends on its sender, its receiver and its number, so that a lost, doubled or misplaced stretch
// is seen. What a test wants done with messages, it says in the public members before any arrives.
#pragma once

#include "support/random.h"
#include "transport/transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::test {

using transport::Envelope;
using transport::Incoming;
using transport::Outgoing;
using transport::Piece;
using transport::Sending;
using transport::Transport;

/// What a message is filled with.
inline std::vector<std::byte> content(int from, int to, std::uint32_t number, std::size_t bytes) {
  std::vector<std::byte> filled(bytes);
  std::uint64_t word = mix(1, from, to, number);
  for (std::size_t i = 0; i < bytes; i += sizeof word) {
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t scrambled = word ^ word >> 32;
    std::memcpy(filled.data() + i, &scrambled, std::min(sizeof scrambled, bytes - i));
  }
  return filled;
}

/// As memcmp(), which sanitizers do not slow down.
inline bool same_bytes(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() && (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

/// Memory cut into so many stretches, some of which may be empty.
inline std::vector<Piece> cut(std::span<std::byte> memory, int count, Random& random) {
  std::vector<std::size_t> cuts{0, memory.size()};
  for (int i = 1; i < count; ++i) cuts.push_back(random.below(static_cast<int>(memory.size()) + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    pieces.push_back({memory.data() + cuts[i], cuts[i + 1] - cuts[i]});
  }
  return pieces;
}

class Party final : public transport::Inbox {
 public:
  struct Arrival {
    int peer;
    Envelope envelope;
    std::size_t bytes;
    bool placed;
    bool lent;
  };

  struct Letter {
    std::span<std::byte> memory;
    std::vector<std::byte> own;
    std::span<std::byte> lendable;  // kept for the next that is lent
    std::vector<Piece> pieces;
    Outgoing outgoing;
  };

  /// Where messages are placed, cut into pieces; none: nowhere.
  std::function<int(int peer, const Envelope&)> pieces_to_place = [](int, const Envelope&) { return 0; };
  /// Whether a message is kept to be released later.
  std::function<bool(int peer, const Envelope&)> keeps = [](int, const Envelope&) { return false; };
  std::function<void(int peer, const Envelope&)> when_arrived = [](int, const Envelope&) {};
  std::function<void()> when_sent = [] {};
  /// Memory that may be lent; none: any.
  std::function<std::span<std::byte>(std::size_t bytes)> memory;

  /// Whether messages are looked at: no, where they are wrong on purpose.
  bool checks = true;

  std::vector<Arrival> arrivals;
  std::vector<std::pair<int, std::string>> losses;
  std::vector<int> garblers;  // of those, who sent what makes no sense
  std::vector<int> goodbyes;
  int answers = 0;  // that came back to this rank

  explicit Party(int rank) : rank_(rank), random_(mix(2, rank)) {}

  int rank() const { return rank_; }
  void use(Transport* transport) { transport_ = transport; }
  Transport& transport() const { return *transport_; }

  /// Sends a message with the next number; several pieces.
  void send(int peer, std::size_t bytes, int pieces = 1, Sending sending = Sending::copied, std::uint32_t segment = 0) {
    const std::uint32_t number = next_number_[peer]++;
    Letter& letter = take_letter(bytes, sending);
    std::ranges::copy(content(rank_, peer, number, bytes), letter.memory.begin());
    letter.pieces = cut(letter.memory, pieces, random_);
    letter.outgoing = {.peer = peer, .sending = sending, .envelope = envelope(peer, number, bytes), .pieces = {}};
    letter.outgoing.envelope.segment = segment;
    letter.outgoing.pieces = letter.pieces;
    ++under_way_;
    transport_->post(letter.outgoing);
  }

  int under_way() const { return under_way_; }
  std::size_t arrived_from(int peer) const {
    return std::count_if(arrivals.begin(), arrivals.end(),
                         [&](const Arrival& arrival) { return arrival.peer == peer; });
  }

  /// Messages that are kept, and whether they still are what they were.
  std::size_t kept() const { return kept_.size(); }
  void release_some(std::size_t most) {
    for (; most > 0 && !kept_.empty(); --most) {
      const int index = random_.below(static_cast<int>(kept_.size()));
      auto [peer, envelope, incoming] = kept_[index];
      kept_.erase(kept_.begin() + index);
      check(peer, envelope, incoming);
      incoming.release();
    }
  }

  std::size_t place(int peer, const Envelope& envelope, std::size_t bytes, std::span<Piece> pieces) override {
    const int wanted = std::min(pieces_to_place(peer, envelope), static_cast<int>(pieces.size()));
    if (wanted == 0) return 0;
    std::vector<std::byte>& place = places_[{peer, envelope.index}];
    EXPECT_TRUE(place.empty()) << "asked twice for the place of one message";
    place.assign(bytes, std::byte{0xee});
    const auto given = cut(place, wanted, random_);
    std::copy(given.begin(), given.end(), pieces.begin());
    return given.size();
  }

  void arrived(int peer, const Envelope& envelope, const Incoming& incoming) override {
    arrivals.push_back({peer, envelope, incoming.bytes, incoming.placed, !incoming.lent.empty()});
    check(peer, envelope, incoming);
    Incoming copy = incoming;
    if (incoming.offered) {
      write_answer(incoming.lent);
      copy.answer();
    } else if (keeps(peer, envelope) && !incoming.scarce && !incoming.placed) {
      kept_.push_back({peer, envelope, copy});
    } else {
      copy.release();
    }
    when_arrived(peer, envelope);
  }

  void sent(Outgoing& outgoing, bool answered) override {
    --under_way_;
    const auto same = [&](const auto& letter) { return &letter->outgoing == &outgoing; };
    const auto found = std::find_if(letters_.begin(), letters_.end(), same);
    if (found == letters_.end()) {
      ADD_FAILURE() << "sent what was not posted";
      return;
    }
    std::unique_ptr<Letter> letter = std::move(*found);
    letters_.erase(found);
    if (answered) {
      ++answers;
      check_answer(letter->memory);
    }
    // The memory may change now: if anybody still reads it, the content is seen to be wrong.
    if (!letter->memory.empty()) std::memset(letter->memory.data(), 0xdd, letter->memory.size());
    spare_.push_back(std::move(letter));
    when_sent();
  }

  void lost(int peer, const std::string& why) override { losses.emplace_back(peer, why); }
  void garbled(int peer, const std::string& why) override {
    garblers.push_back(peer);
    lost(peer, why);
  }
  void closed(int peer) override { goodbyes.push_back(peer); }

 private:
  struct Kept {
    int peer;
    Envelope envelope;
    Incoming incoming;
  };

  Envelope envelope(int peer, std::uint32_t number, std::size_t bytes) const {
    return {.context = static_cast<std::uint32_t>(rank_),
            .sequence = static_cast<std::uint32_t>(peer),
            .index = number,
            .call = {bytes, mix(3, rank_, peer, number)}};
  }

  Letter& take_letter(std::size_t bytes, Sending sending) {
    if (spare_.empty()) spare_.push_back(std::make_unique<Letter>());
    letters_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    Letter& letter = *letters_.back();
    if (memory && sending != Sending::copied) {
      if (letter.lendable.size() < bytes) letter.lendable = memory(std::bit_ceil(bytes));
      letter.memory = letter.lendable.first(bytes);
    } else {
      letter.own.resize(bytes);
      letter.memory = letter.own;
    }
    return letter;
  }

  void check(int peer, const Envelope& envelope, const Incoming& incoming) {
    if (!checks) {
      places_.erase({peer, envelope.index});
      return;
    }
    EXPECT_EQ(envelope.context, static_cast<std::uint32_t>(peer));
    EXPECT_EQ(envelope.sequence, static_cast<std::uint32_t>(rank_));
    EXPECT_EQ(envelope.call[0], incoming.bytes);
    EXPECT_EQ(envelope.call[1], mix(3, peer, rank_, envelope.index));
    const auto expected = content(peer, rank_, envelope.index, incoming.bytes);
    EXPECT_TRUE(holds(peer, envelope, incoming, expected))
        << "message " << envelope.index << " of " << incoming.bytes << " bytes from " << peer << " to " << rank_;
  }

  bool holds(int peer, const Envelope& envelope, const Incoming& incoming, std::span<const std::byte> expected) {
    if (incoming.placed) {
      const auto place = places_.find({peer, envelope.index});
      if (place == places_.end()) return false;
      const bool same = same_bytes(expected, place->second);
      places_.erase(place);
      return same;
    }
    if (incoming.lent.empty()) {
      // Elements of any type may lie in it.
      EXPECT_TRUE(incoming.bytes == 0 || reinterpret_cast<std::uintptr_t>(incoming.data) % 8 == 0);
      return same_bytes(expected, {incoming.data, incoming.bytes});
    }
    if (transport::total_bytes(incoming.lent) != incoming.bytes) return false;
    for (const Piece& piece : incoming.lent) {
      if (!same_bytes(expected.first(piece.bytes), {piece.data, piece.bytes})) return false;
      expected = expected.subspan(piece.bytes);
    }
    return true;
  }

  // The answer to a message depends on who answers and on the byte's number.
  static std::byte answer_byte(std::size_t i) { return static_cast<std::byte>(i * 7 + 1); }

  static void write_answer(std::span<const Piece> pieces) {
    std::size_t at = 0;
    for (const Piece& piece : pieces) {
      for (std::size_t i = 0; i < piece.bytes; ++i) piece.data[i] = answer_byte(at++);
    }
  }

  static void check_answer(std::span<const std::byte> memory) {
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (memory[i] != answer_byte(i)) {
        ADD_FAILURE() << "the answer is wrong at byte " << i;
        return;
      }
    }
  }

  const int rank_;
  Random random_;
  Transport* transport_ = nullptr;
  std::map<int, std::uint32_t> next_number_;
  std::vector<std::unique_ptr<Letter>> letters_;  // with the transport
  std::vector<std::unique_ptr<Letter>> spare_;
  int under_way_ = 0;
  std::vector<Kept> kept_;
  std::map<std::pair<int, std::uint32_t>, std::vector<std::byte>> places_;
};

}  // namespace trireme::test
