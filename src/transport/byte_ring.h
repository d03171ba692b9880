// A ring of records between one writer and one reader, in memory that both see.
//
// A record is a header of one cache line and its payload, in one stretch. Its stamp says that it is there: the position
// it was written to, plus one, stored last. Before a record is stamped, the stamp of the place behind it is cleared, so
// what is left there from the lap before is never taken for a record. The reader looks at one word to see whether
// something came, and that word comes with the header.
//
// Records may be let go in any order; their room is given back in the order in which they came.
#pragma once

#include "transport/transport.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

namespace trireme::transport {

inline constexpr std::size_t kLine = 64;

inline constexpr std::size_t round_to_line(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

enum class RecordKind : std::uint16_t {
  message,   ///< the payload is the message
  lent,      ///< it lies in the sender's memory: in one place, or in those that the payload lists
  offered,   ///< the same, for an answer
  released,  ///< of a lent message, named by its token
  answered,  ///< the same, with the answer in place
  goodbye,   ///< the sender closes in an orderly way
  skip,      ///< nothing; the next record is at the ring's start
};

/// What a record says of itself.
struct RecordInfo {
  RecordKind kind = RecordKind::message;
  std::uint16_t places = 0;  ///< that the payload lists; 0: what is lent is in one, at `offset`
  std::uint32_t token = 0;   ///< the sender's, of what it lends
  std::uint64_t bytes = 0;   ///< of the message
  std::uint64_t offset = 0;  ///< of its one place in the memory that the sender shows
  Envelope envelope = {};
};

struct alignas(kLine) RecordHeader : RecordInfo {
  std::atomic<std::uint64_t> stamp;
};

static_assert(sizeof(RecordHeader) == kLine && std::is_trivially_copyable_v<RecordInfo>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a ring is shared between processes");

/// The ring's memory: zeroed before anyone uses it.
struct ByteRing {
  static constexpr std::size_t kBytes = std::size_t{1} << 20;

  alignas(kLine) std::atomic<std::uint64_t> freed;  ///< up to here the reader has let go
  std::atomic<std::uint32_t> wanted;  ///< the writer waits for room, and is to be woken when there is some
  alignas(kLine) std::byte bytes[kBytes];

  RecordHeader& header(std::uint64_t position) {
    return *std::launder(reinterpret_cast<RecordHeader*>(bytes + position % kBytes));
  }
};

/// The most that one record's payload may have.
inline constexpr std::size_t kMostPayload = ByteRing::kBytes / 4;

class RingWriter {
 public:
  explicit RingWriter(ByteRing* ring = nullptr) : ring_(ring) {}

  /// Room for a record with that payload, which is to be filled; null if there is none now.
  std::byte* reserve(std::size_t payload) {
    const std::size_t size = kLine + round_to_line(payload);
    const std::size_t to_end = ByteRing::kBytes - position_ % ByteRing::kBytes;
    const bool skips = size > to_end || turns_back(size);
    // One line more, for the stamp that is cleared behind the record.
    if (!has_room((skips ? to_end : 0) + size + kLine)) return nullptr;
    if (skips) {
      RecordHeader& header = ring_->header(position_);
      header.kind = RecordKind::skip;
      ring_->header(position_ + to_end).stamp.store(0, std::memory_order_relaxed);
      header.stamp.store(position_ + 1, std::memory_order_release);
      position_ += to_end;
    }
    size_ = size;
    return reinterpret_cast<std::byte*>(&ring_->header(position_)) + kLine;
  }

  /// The record for which room was reserved, and whose payload is in place. The reader looks at the header's line all
  /// the time: it is written last, at one go, to take it away only once. Sequentially consistent, so that the reader's
  /// bell may be looked at next.
  void publish(const RecordInfo& info) {
    ring_->header(position_ + size_).stamp.store(0, std::memory_order_relaxed);
    RecordHeader& header = ring_->header(position_);
    static_cast<RecordInfo&>(header) = info;
    header.stamp.exchange(position_ + 1);
    position_ += size_;
  }

 private:
  /// Small records stay at the ring's start while the reader keeps up: those lines are in the caches of both.
  bool turns_back(std::size_t size) {
    constexpr std::size_t kShortLap = std::size_t{32} << 10;
    const std::size_t begin = position_ % ByteRing::kBytes;
    if (size > kShortLap / 4 || begin > kShortLap || begin + size <= kShortLap) return false;
    freed_ = ring_->freed.load();
    return position_ - begin + size + kLine <= freed_;
  }

  bool has_room(std::size_t bytes) {
    if (position_ + bytes - freed_ <= ByteRing::kBytes) return true;
    // Says so before it looks once more, as the reader frees room before it looks whether any is wanted.
    ring_->wanted.store(1);
    freed_ = ring_->freed.load();
    return position_ + bytes - freed_ <= ByteRing::kBytes;
  }

  ByteRing* ring_;
  std::uint64_t position_ = 0;
  std::uint64_t freed_ = 0;  ///< as last seen
  std::size_t size_ = 0;
};

class RingReader {
 public:
  explicit RingReader(ByteRing* ring = nullptr) : ring_(ring) {}

  /// The next record; null if it is not there yet.
  const RecordHeader* peek() {
    while (true) {
      const RecordHeader& header = ring_->header(position_);
      // Sequentially consistent for the reader's last look before it sleeps.
      if (header.stamp.load() != position_ + 1) return nullptr;
      if (header.kind != RecordKind::skip) return &header;
      position_ += ByteRing::kBytes - position_ % ByteRing::kBytes;
    }
  }

  static const std::byte* payload(const RecordHeader& header) {
    return reinterpret_cast<const std::byte*>(&header) + kLine;
  }

  std::uint64_t position() const { return position_; }

  /// That the record that peek() gave can have: it ends where the ring does.
  std::size_t most_payload() const { return ByteRing::kBytes - position_ % ByteRing::kBytes - kLine; }

  /// Past the record that peek() gave. The next one is looked for when this one is dealt with: its line, which the
  /// writer had last, comes meanwhile.
  void pass(std::size_t payload_bytes) {
    position_ += kLine + round_to_line(payload_bytes);
    __builtin_prefetch(&ring_->header(position_));
  }

  /// Everything before `position` has been read. True if the writer has to be woken.
  bool let_go_until(std::uint64_t position) {
    if (position == freed_) return false;
    freed_ = position;
    ring_->freed.store(position);
    return ring_->wanted.load() != 0 && ring_->wanted.exchange(0) != 0;
  }

  /// What is read but not let go takes up so much of the ring that a record might find no room.
  bool crowded() const { return position_ - freed_ > ByteRing::kBytes - 2 * (kMostPayload + 2 * kLine); }

 private:
  ByteRing* ring_;
  std::uint64_t position_ = 0;
  std::uint64_t freed_ = 0;
};

}  // namespace trireme::transport
