// The flight recorder: what is written there can be read by others, at any time.
#include "communicator/board.h"

#include "communicator/start.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>
#include <unistd.h>

namespace trireme {
namespace {

Call call_of(std::uint64_t elements) {
  return {.collective = Collective::allreduce, .dtype = Dtype::f32, .reduces = true, .elements = elements};
}

std::uint64_t begin(Board& board, int rank, std::uint32_t sequence) {
  std::uint64_t words[2] = {};
  call_of(sequence + 1000).pack(words);
  return board.begin(rank, 7, sequence, words);
}

// Some of the same call follow one another.
std::uint64_t elements_of(std::uint32_t sequence) { return sequence / 50 + 1000; }

void pass(Board& board, int rank, std::uint32_t sequence, Timing timing = Timing::shared) {
  std::uint64_t words[2] = {};
  call_of(elements_of(sequence)).pack(words);
  board.pass(rank, 7, sequence, words, timing);
}

TEST(Board, KeepsTheLastOperationsOfEachRank) {
  Board board(3);
  EXPECT_FALSE(board.last(1).has_value());
  constexpr std::uint32_t kMany = 3 * Board::kRecords + 5;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    const std::uint64_t number = begin(board, 1, i);
    if (i + 1 < kMany) board.end(1, number);
  }
  const std::vector<Record> records = board.recent(1, Board::kRecords);
  ASSERT_EQ(records.size(), Board::kRecords);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::uint64_t number = kMany - Board::kRecords + i;
    EXPECT_EQ(records[i].number, number);
    EXPECT_EQ(records[i].sequence, number);
    EXPECT_EQ(records[i].context, 7U);
    EXPECT_EQ(records[i].call.elements, number + 1000);
    EXPECT_EQ(records[i].ended.has_value(), i + 1 < records.size());
    if (records[i].ended) {
      EXPECT_LE(records[i].begun, *records[i].ended);
    }
    if (i > 0) {
      EXPECT_LE(records[i - 1].begun, records[i].begun);
    }
  }
  EXPECT_EQ(board.recent(1, 2).size(), 2U);
  EXPECT_EQ(board.last(1)->number, kMany - 1);
  EXPECT_TRUE(board.recent(0, Board::kRecords).empty());
  EXPECT_TRUE(board.recent(2, Board::kRecords).empty());
}

// What ended long ago must not be marked on the operation that has its place now.
TEST(Board, AnOldOperationEndsNobodyElses) {
  Board board(1);
  const std::uint64_t old = begin(board, 0, 0);
  for (std::uint32_t i = 1; i <= Board::kRecords; ++i) begin(board, 0, i);
  board.end(0, old);
  for (const Record& record : board.recent(0, Board::kRecords)) EXPECT_FALSE(record.ended) << record.sequence;
}

TEST(Board, WhatPassesEndsWhenItHasBegun) {
  Board board(1);
  pass(board, 0, 5);
  const Record record = *board.last(0);
  EXPECT_EQ(record.sequence, 5U);
  EXPECT_EQ(record.call.elements, elements_of(5));
  EXPECT_EQ(record.ended, record.begun);
}

TEST(Board, CanBeSwitchedOff) {
  Board board(1);
  board.set_recording(false);
  board.end(0, begin(board, 0, 0));
  pass(board, 0, 1);
  EXPECT_TRUE(board.recent(0, Board::kRecords).empty());
  board.set_recording(true);
  board.end(0, begin(board, 0, 2));
  pass(board, 0, 3);
  EXPECT_EQ(board.recent(0, Board::kRecords).size(), 2U);
}

// Also after a stream of those that do, as soon as one of them is timed again.
TEST(Board, WhatDoesNotComeAtOnceIsTimed) {
  Board board(1);
  std::uint32_t sequence = 0;
  for (; sequence < 1000; ++sequence) pass(board, 0, sequence);
  for (int i = 0; i < 1000; ++i, ++sequence) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    pass(board, 0, sequence);
  }
  const std::vector<Record> records = board.recent(0, 700);
  for (std::size_t i = 1; i < records.size(); ++i) {
    EXPECT_TRUE(records[i].timed) << i;
    EXPECT_GE(records[i].begun - records[i - 1].begun, std::chrono::microseconds(49)) << i;
  }
}

// A stream is as quick as it gets, unless somebody else has the core: so there are many.
TEST(Board, OfManyAtOnceSomeAreTimedTheSameOnAllRanks) {
  constexpr std::uint32_t kMany = 1000;
  Board board(2);
  std::map<std::uint32_t, bool> timed[2];
  for (std::uint32_t begin = 0; begin < 200 * kMany; begin += kMany) {
    for (int rank = 0; rank < 2; ++rank) {
      for (std::uint32_t i = 0; i < kMany; ++i) pass(board, rank, begin + i);
      const std::vector<Record> records = board.recent(rank, kMany);
      ASSERT_EQ(records.size(), kMany);
      std::vector<std::uint64_t> expected;
      for (std::uint32_t i = 0; i < kMany; ++i) {
        const Record& record = records[i];
        EXPECT_EQ(record.number, begin + i);
        EXPECT_EQ(record.sequence, begin + i);
        EXPECT_EQ(record.call.elements, elements_of(begin + i));
        EXPECT_EQ(record.ended, record.begun);
        if (!record.timed && i > 0) {
          EXPECT_EQ(record.begun, records[i - 1].begun) << i;
        }
        timed[rank][record.sequence] = record.timed;
        if (record.timed) expected.push_back(record.number);
      }
      std::vector<std::uint64_t> found;
      for (const Record& record : board.timed(rank, begin)) found.push_back(record.number);
      EXPECT_EQ(found, expected);
    }
  }
  int all = 0;
  int none = 0;
  for (const auto& [sequence, by_first] : timed[0]) {
    const bool by_second = timed[1][sequence];
    all += by_first && by_second ? 1 : 0;
    none += !by_first && !by_second ? 1 : 0;
  }
  EXPECT_GE(all, static_cast<int>(timed[0].size()) / 100);
  EXPECT_GE(none, static_cast<int>(timed[0].size()) / 2);
}

// Of those that are alike, only the first takes room.
TEST(Board, OfManyAtOnceMoreAreKept) {
  constexpr std::uint32_t kMany = 10 * Board::kRecords;
  Board board(1);
  for (std::uint32_t i = 0; i < kMany; ++i) pass(board, 0, i);
  const std::vector<Record> records = board.recent(0, kMany);
  EXPECT_GT(records.size(), 4 * Board::kRecords);
  EXPECT_EQ(records.back().number, kMany - 1);
}

// What is of another communicator or call, or no longer at once, goes on with nothing.
TEST(Board, OnlyWhatIsAlikeFollows) {
  Board board(1);
  const auto pass_one = [&](std::uint32_t context, std::uint32_t sequence, std::uint64_t elements) {
    std::uint64_t words[2] = {};
    call_of(elements).pack(words);
    board.pass(0, context, sequence, words, Timing::shared);
  };
  std::uint32_t sequences[2] = {};
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const std::uint32_t context = i / 7 % 2;
    if (i % 97 == 0) {
      begin(board, 0, i);
      EXPECT_TRUE(board.last(0)->timed);
      EXPECT_FALSE(board.last(0)->ended);
    } else {
      const std::uint32_t sequence = sequences[context]++;
      const std::uint64_t elements = i / 11;
      pass_one(context, sequence, elements);
      const Record last = *board.last(0);
      ASSERT_EQ(last.number, i);
      ASSERT_EQ(last.context, context);
      ASSERT_EQ(last.sequence, sequence);
      ASSERT_EQ(last.call.elements, elements);
      ASSERT_TRUE(last.ended);
    }
  }
}

TEST(Board, WhatHasToWaitIsTimed) {
  Board board(1);
  for (std::uint32_t sequence = 0; sequence < 1000; ++sequence) {
    pass(board, 0, 2 * sequence);
    begin(board, 0, 2 * sequence + 1);
    EXPECT_TRUE(board.last(0)->timed);
  }
}

// Among those that do without.
TEST(Board, WhatNeedsATimeHasIt) {
  Board board(1);
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    const bool own = i % 100 == 99;
    pass(board, 0, i, own ? Timing::own : Timing::shared);
    if (own) {
      EXPECT_TRUE(board.last(0)->timed);
      EXPECT_EQ(board.last(0)->sequence, i);
    }
  }
}

TEST(Board, TimesAreThoseOfTheClock) {
  Board board(1);
  const auto before = std::chrono::steady_clock::now().time_since_epoch();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const std::uint64_t number = begin(board, 0, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  board.end(0, number);
  const auto after = std::chrono::steady_clock::now().time_since_epoch();
  const Record record = *board.last(0);
  constexpr auto kSlack = std::chrono::milliseconds(1);  // by two clocks
  EXPECT_GE(record.begun, before + std::chrono::milliseconds(30));
  EXPECT_GE(*record.ended, record.begun + std::chrono::milliseconds(200) - kSlack);
  EXPECT_LE(*record.ended, after + kSlack);
}

TEST(Board, WhoReadsWhileItIsWrittenSeesWholeRecords) {
  constexpr std::uint64_t kOverwritten = 50 * Board::kRecords;
  Board board(2);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint32_t i = 0; !stop; ++i) {
      board.end(0, begin(board, 0, i));
      pass(board, 1, i);
    }
  });
  std::uint64_t compared = 0;
  for (std::uint64_t last = 0; last < kOverwritten;) {
    for (const Record& record : board.recent(0, Board::kRecords)) {
      EXPECT_EQ(record.call.elements, record.sequence + std::uint64_t{1000});
      EXPECT_EQ(record.number, record.sequence);
    }
    for (const Record& record : board.recent(1, 20 * Board::kRecords)) {
      EXPECT_EQ(record.call.elements, elements_of(record.sequence));
      EXPECT_EQ(record.number, record.sequence);
      last = record.number;
      ++compared;
    }
    if (::testing::Test::HasFailure()) break;
  }
  stop = true;
  writer.join();
  EXPECT_GT(compared, Board::kRecords);
}

TEST(Board, TheFirstFateIsToldAndCutToItsRoom) {
  Board board(2);
  EXPECT_EQ(board.fate(0), "");
  board.tell_fate(0, "was killed by signal 9 (Killed)");
  board.tell_fate(0, "exited with status 1");
  EXPECT_EQ(board.fate(0), "was killed by signal 9 (Killed)");
  board.tell_fate(1, std::string(1000, 'x'));
  EXPECT_LE(board.fate(1).size(), 124U);
}

TEST(Board, TellsWhomARankBlamesLast) {
  Board board(2);
  EXPECT_TRUE(board.blamed(0).empty());
  board.blame(0, std::vector{1, 7});
  EXPECT_EQ(board.blamed(0), (std::vector{1, 7}));
  EXPECT_TRUE(board.blamed(1).empty());
  board.blame(0, std::vector{1});
  EXPECT_EQ(board.blamed(0), std::vector{1});
  board.blame(0, std::vector<int>(Board::kMostBlamed + 1));
  EXPECT_TRUE(board.blamed(0).empty());
}

TEST(Board, IsInheritedOnlyIfItFits) {
  Board board(3);
  begin(board, 2, 5);
  const auto inherited = [](const std::string& value, int ranks) {
    ::setenv("TRIREME_BOARD", value.c_str(), 1);
    return Board::inherited(ranks);
  };
  const std::string number = std::to_string(board.descriptor());
  const auto same = inherited(number, 3);
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->watched());
  EXPECT_EQ(same->last(2)->sequence, 5U);
  EXPECT_FALSE(inherited(number, 4));
  EXPECT_FALSE(inherited("x" + number, 3));
  EXPECT_FALSE(inherited("999999", 3));
  EXPECT_FALSE(inherited("1", 3));
  EXPECT_FALSE(inherited("", 3));
  ::unsetenv("TRIREME_BOARD");
  EXPECT_FALSE(Board::inherited(3));
}

// Its maker's own copy is no rank's, which alone can ask.
TEST(Board, ItsMakerIsAskedForWhatRanksElsewhereDid) {
  const auto made = Board::with_bell(5);
  Board& maker = *made;
  EXPECT_FALSE(maker.ask());
  ::setenv("TRIREME_BOARD", std::to_string(maker.descriptor()).c_str(), 1);
  const auto board = Board::inherited(5);
  ::unsetenv("TRIREME_BOARD");
  ASSERT_TRUE(board);
  std::uint64_t asked = 0;
  EXPECT_LT(::read(maker.bell(), &asked, sizeof asked), 0);
  EXPECT_TRUE(board->ask());
  EXPECT_TRUE(board->ask());
  ASSERT_EQ(::read(maker.bell(), &asked, sizeof asked), static_cast<ssize_t>(sizeof asked));
  EXPECT_EQ(asked, 2U);

  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
  const auto before = now();
  for (const int rank : {1, 2}) {
    board->sign(rank);
    EXPECT_TRUE(board->knows(rank, before)) << "those that are here";
  }
  for (const int rank : {0, 3, 4}) EXPECT_FALSE(board->knows(rank, before));
  const Record record{.number = 5000,
                      .context = 7,
                      .sequence = 77,
                      .call = call_of(12),
                      .begun = before - std::chrono::milliseconds(1),
                      .ended = before};
  maker.tell_last(3, record);
  maker.tell_last(4, std::nullopt);
  EXPECT_TRUE(board->knows(3, before));
  EXPECT_TRUE(board->knows(4, before));
  EXPECT_FALSE(board->knows(0, before));
  EXPECT_FALSE(board->knows(3, now())) << "what it did since was not told";
  EXPECT_FALSE(board->last(4));
  const auto last = board->last(3);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->describe(), record.describe());
  EXPECT_EQ(last->context, 7U);
  EXPECT_LT(std::chrono::abs(*last->ended - *record.ended), std::chrono::milliseconds(1));
  EXPECT_LT(std::chrono::abs(last->begun - record.begun), std::chrono::milliseconds(1));

  // It is told again, and its operation has ended meanwhile.
  Record again{.number = 3, .sequence = 4, .call = call_of(12), .begun = record.begun, .ended = {}};
  maker.tell_last(0, again);
  EXPECT_FALSE(board->last(0)->ended);
  again.ended = before;
  maker.tell_last(0, again);
  EXPECT_LT(std::chrono::abs(*board->last(0)->ended - before), std::chrono::milliseconds(1));

  // It was not timed there.
  maker.tell_last(0, Record{.number = 9, .call = call_of(12), .begun = record.begun, .timed = false, .ended = before});
  EXPECT_FALSE(board->last(0)->timed);
  EXPECT_LT(std::chrono::abs(*board->last(0)->ended - before), std::chrono::milliseconds(1));
  EXPECT_EQ(board->recent(0, 16).size(), 2U) << "not those between";

  // It goes on, and what it did before the board was there counts from then.
  maker.tell_last(3, Record{.number = 5001, .context = 7, .sequence = 78, .call = call_of(12), .ended = {}});
  EXPECT_EQ(board->last(3)->sequence, 78U);
  EXPECT_FALSE(board->last(3)->ended);
  EXPECT_LE(board->last(3)->begun, before);
}

TEST(Board, WithoutABellAsksNobody) {
  const Board board(3);
  EXPECT_EQ(board.bell(), -1);
  ::setenv("TRIREME_BOARD", std::to_string(board.descriptor()).c_str(), 1);
  EXPECT_FALSE(Board::inherited(3)->ask());
  ::unsetenv("TRIREME_BOARD");
}

TEST(Board, IsSharedByItsDescriptor) {
  Board board(3);
  begin(board, 2, 5);
  const auto same = Board::shared(3, board.descriptor());
  ASSERT_TRUE(same);
  EXPECT_FALSE(same->watched());
  begin(*same, 1, 6);
  EXPECT_EQ(same->last(2)->sequence, 5U);
  EXPECT_EQ(board.last(1)->sequence, 6U);
  EXPECT_FALSE(Board::shared(2, board.descriptor()));
  EXPECT_FALSE(Board::shared(3, -1));
}

}  // namespace
}  // namespace trireme
