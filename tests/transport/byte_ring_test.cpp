#include "transport/byte_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>

namespace trireme::transport {
namespace {

/// Both ends of a ring, and what is on its way.
class Ends {
 public:
  /// False if there is no room.
  bool write(std::size_t bytes) {
    std::byte* const payload = writer_.reserve(bytes);
    if (payload == nullptr) return false;
    offsets_.insert(payload - ring_->bytes);
    std::memset(payload, static_cast<int>(written_ % 251), bytes);
    writer_.publish({.token = static_cast<std::uint32_t>(written_++), .bytes = bytes});
    return true;
  }

  /// The next record, which stays where it is; none if there is none.
  bool read() {
    const RecordHeader* header = reader_.peek();
    if (header == nullptr) return false;
    EXPECT_EQ(header->token, read_++);
    held_.push_back({reader_.position(), header});
    reader_.pass(header->bytes);
    return true;
  }

  /// Lets the oldest record that is held go; it must be as it was written.
  void let_go() {
    const RecordHeader& header = *held_.front().header;
    const std::byte* const payload = RingReader::payload(header);
    const auto expected = static_cast<std::byte>(let_go_++ % 251);
    EXPECT_TRUE(std::all_of(payload, payload + header.bytes, [&](std::byte each) { return each == expected; }));
    held_.pop_front();
    reader_.let_go_until(held_.empty() ? reader_.position() : held_.front().position);
  }

  std::size_t held() const { return held_.size(); }
  std::uint64_t written() const { return written_; }
  std::uint64_t on_their_way() const { return written_ - read_; }
  const std::set<std::ptrdiff_t>& offsets() const { return offsets_; }

 private:
  struct Held {
    std::uint64_t position;
    const RecordHeader* header;
  };

  std::unique_ptr<ByteRing> ring_ = std::make_unique<ByteRing>();
  RingWriter writer_{ring_.get()};
  RingReader reader_{ring_.get()};
  std::deque<Held> held_;
  std::uint64_t written_ = 0, read_ = 0, let_go_ = 0;
  std::set<std::ptrdiff_t> offsets_;
};

TEST(ByteRing, GivesRecordsOfAnySizeInTheirOrderHoweverTheEndsTakeTurns) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound)(random); };
    // Of all sizes, or mostly small ones, by a reader that keeps up or hardly.
    const std::size_t most = seed % 2 == 0 ? kMostPayload : 2000;
    const std::size_t lag = seed % 5;
    Ends ends;
    while (ends.written() < 4000) {
      const bool wrote = ends.write(below(below(most)));
      if (!wrote || below(lag) == 0) {
        while (ends.read()) {
        }
        EXPECT_EQ(ends.on_their_way(), 0U);
      }
      while (ends.held() > 0 && (!wrote || below(lag) == 0)) ends.let_go();
    }
  }
}

TEST(ByteRing, KeepsSmallRecordsWithinAFewLinesWhileTheReaderKeepsUp) {
  Ends ends;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_TRUE(ends.write(1024));
    ASSERT_TRUE(ends.read());
    ends.let_go();
  }
  EXPECT_LT(*ends.offsets().rbegin(), 32 << 10);
}

TEST(ByteRing, HasRoomForMoreSmallRecordsThanThatWhileTheReaderIsAway) {
  Ends ends;
  while (ends.write(1024)) {
  }
  EXPECT_GT(ends.written(), ByteRing::kBytes / 1024 * 9 / 10);
  while (ends.read()) ends.let_go();
  EXPECT_EQ(ends.on_their_way(), 0U);
}

}  // namespace
}  // namespace trireme::transport
