// What the flight recorder keeps of the operations that take least: two ranks that share memory.
#include "communicator/board.h"
#include "communicator/cluster.h"
#include "support/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace trireme::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// On two ranks a small allreduce is over in a microsecond and is recorded then; but not one that has to wait.
TEST(Records, AreThereOfWhatWaitsAndOfWhatIsOver) {
  constexpr int kCalls = 2000;
  Board board(2);
  const Environment inherited("TRIREME_BOARD", std::to_string(board.descriptor()));
  Cluster cluster(Way::shm, 2, 60s);
  cluster.run([&](Communicator& world) {
    std::vector<float> data(10, 1.0F);
    for (int i = 0; i < kCalls; ++i) world.allreduce(data);
    const auto until = Clock::now() + 20s;
    if (world.rank() == 0) {
      const std::vector<Record> records = board.recent(0, Board::kRecords);
      ASSERT_EQ(records.size(), Board::kRecords);
      for (const Record& record : records) {
        EXPECT_EQ(record.call.elements, 10U) << record.describe();
        EXPECT_TRUE(record.ended) << record.describe();
      }
      EXPECT_EQ(records.back().number, kCalls - 1U);
      world.barrier();
    } else {
      const auto waits = [&] { return board.last(0)->call.collective == Collective::barrier; };
      while (!waits() && Clock::now() < until) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(waits());
      EXPECT_FALSE(board.last(0)->ended);
      EXPECT_TRUE(board.last(0)->timed);
      world.barrier();
    }
  });
}

// While they follow each other at once, few of them are timed; but the one is, on both ranks, that one rank begins so late
// that the other sleeps. It does, unless somebody else has its core.
TEST(Records, OfWhatWasAwaitedHaveTimes) {
  constexpr int kPauses = 100;
  constexpr int kCalls = 500;
  Board board(2);
  const Environment inherited("TRIREME_BOARD", std::to_string(board.descriptor()));
  Cluster cluster(Way::shm, 2, 60s);
  std::atomic<int> timed = 0;
  cluster.run([&](Communicator& world) {
    std::vector<float> data(10, 1.0F);
    const int other = 1 - world.rank();
    const auto waits = [&] {
      const Record last = *board.last(other);
      return last.number > board.last(world.rank())->number && !last.ended;
    };
    for (int i = 0; i < kPauses; ++i) {
      for (int call = 0; call < kCalls; ++call) world.allreduce(data);
      const bool late = world.rank() == i % 2;
      if (late) {
        const auto until = Clock::now() + 20s;
        while (!waits() && Clock::now() < until) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(5ms);
      }
      world.allreduce(data);
      if (late) {
        const Record mine = *board.last(world.rank());
        const std::vector<Record> others = board.recent(other, 2);
        const auto theirs = std::ranges::find(others, mine.number, &Record::number);
        ASSERT_NE(theirs, others.end()) << mine.describe();
        EXPECT_TRUE(theirs->timed) << mine.describe();
        if (mine.timed) {
          ++timed;
          EXPECT_GE(mine.begun - theirs->begun, 5ms) << mine.describe();
        }
      }
      world.barrier();  // and nothing else, so that all is still there that was looked at
    }
  });
  EXPECT_GT(timed, kPauses / 2);
}

// A leaf that is early is done at once, and nobody has waited for it.
TEST(Records, OfCollectivesWithARootHaveTimes) {
  Board board(2);
  const Environment inherited("TRIREME_BOARD", std::to_string(board.descriptor()));
  Cluster cluster(Way::shm, 2, 60s);
  cluster.run([&](Communicator& world) {
    std::vector<float> data(10, 1.0F);
    for (int i = 0; i < 1000; ++i) world.reduce(data, 0);
  });
  for (const int rank : {0, 1}) EXPECT_EQ(board.timed(rank, 0).size(), 1000U);
}

}  // namespace
}  // namespace trireme::test
