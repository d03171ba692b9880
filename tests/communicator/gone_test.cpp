// Ranks that leave, or do not come; and memory that stays when communicators go.
#include "communicator/board.h"
#include "communicator/cluster.h"
#include "communicator/payload.h"
#include "support/environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <thread>

namespace trireme::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Gone : public ::testing::TestWithParam<Way> {};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_P(Gone, WhoClosesEarlyIsNamed) {
  Cluster cluster(GetParam(), 3, 20s);
  const auto begin = Clock::now();
  const auto said = cluster.outcomes([&](Communicator& world) {
    if (world.rank() == 1) {
      world.close();
      return;
    }
    std::vector<float> data(100'000);
    world.allreduce(data);
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(said[rank].find("PeerError"), 0) << said[rank];
    EXPECT_TRUE(has(said[rank], "rank 1")) << said[rank];
    EXPECT_EQ(outcome([&] { cluster[rank].barrier(); }), said[rank]);
  }
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST_P(Gone, WhoIsDestroyedIsNamed) {
  Cluster cluster(GetParam(), 3, 20s);
  cluster.run([](Communicator& world) { world.barrier(); });
  cluster.drop(2);
  const auto said = cluster.outcomes([](Communicator& world) { world.barrier(); });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(said[rank].find("PeerError"), 0) << said[rank];
    EXPECT_TRUE(has(said[rank], "rank 2")) << said[rank];
  }
}

TEST_P(Gone, WhoNeverCallsIsNamed) {
  Cluster cluster(GetParam(), 3, 60s);
  const auto begin = Clock::now();
  const auto said = cluster.outcomes([&](Communicator& world) {
    if (world.rank() == 2) return;
    std::vector<float> data(10);
    world.allreduce(data, Op::sum, {.deadline = 300ms});
  });
  EXPECT_LT(Clock::now() - begin, 10s);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(said[rank].find("TimeoutError"), 0) << said[rank];
    EXPECT_TRUE(has(said[rank], "rank 2")) << said[rank];
    EXPECT_TRUE(has(said[rank], "allreduce of 10 f32")) << said[rank];
    EXPECT_EQ(outcome([&] { cluster[rank].barrier(); }), said[rank]);
  }
  // Who comes late hears of it, too.
  std::vector<float> data(10);
  const std::string late = outcome([&] { cluster[2].allreduce(data); });
  EXPECT_TRUE(has(late, "TimeoutError") || has(late, "PeerError")) << late;
  EXPECT_TRUE(has(late, "rank 0") || has(late, "rank 1")) << late;
}

TEST_P(Gone, WhatARankSentBeforeItLeftIsReceived) {
  Cluster cluster(GetParam(), 2, 20s);
  cluster.run([&](Communicator& world) {
    world.barrier();  // so that there are connections
    std::vector<int> data(1000, 5);
    if (world.rank() == 0) {
      world.send(data, 1);
      world.broadcast(data, 0);
    }
  });
  cluster.drop(0);
  std::this_thread::sleep_for(20ms);
  std::vector<int> data(1000);
  cluster[1].receive(data, 0);
  EXPECT_EQ(data[999], 5);
  data.assign(1000, 0);
  cluster[1].broadcast(data, 0);
  EXPECT_EQ(data[999], 5);
  // What is sent before the goodbye has been read is only lost.
  std::string said;
  const auto begin = Clock::now();
  while (said.empty() && Clock::now() - begin < 1s) said = outcome([&] { cluster[1].send(data, 0); });
  EXPECT_EQ(said.find("PeerError"), 0) << said;
}

// Nobody is gone here, but one is far behind: what came meanwhile does not make it slower and slower.
TEST_P(Gone, WhoIsFarBehindCatchesUp) {
  Cluster cluster(GetParam(), 2, 60s);
  const auto begin = Clock::now();
  cluster.run([&](Communicator& world) {
    const int many = kEffort == 1 ? 4'000 : 40'000;
    std::vector<int> data(16), last(1);
    if (world.rank() == 1) world.receive(last, 0);
    for (int i = 0; i < many; ++i) {
      data[0] = i;
      if (world.rank() == 1) data[0] = -1;
      world.broadcast(data, 0);
      ASSERT_EQ(data[0], i);
    }
    if (world.rank() == 0) world.send(last, 1);
  });
  EXPECT_LT(Clock::now() - begin, 20s);
}

TEST_P(Gone, LargeUnevenSharesOutliveTheirSender) {
  for (int again = 0; again < 5; ++again) {
    Cluster cluster(GetParam(), 2, 20s);
    std::vector<std::thread> threads;
    for (const int rank : {0, 1}) {
      threads.emplace_back([&, rank] {
        const std::vector<std::size_t> to = {rank == 0 ? 0U : 3U, rank == 0 ? 200'000U : 0U};
        const std::vector<std::size_t> from = {rank == 0 ? 0U : 200'000U, rank == 0 ? 3U : 0U};
        std::vector<int> in(rank == 0 ? 200'000 : 3, rank + 1);
        std::vector<int> out(rank == 0 ? 3 : 200'000);
        if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(again));
        cluster[rank].all_to_all(in, to, out, from);
        for (const int one : out) ASSERT_EQ(one, 2 - rank);
        if (rank == 0) cluster.drop(0);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_P(Gone, DeadlinesHoldOnABusyCommunicator) {
  Cluster cluster(GetParam(), 2, 20s);
  std::atomic<bool> over{false};
  const auto said = cluster.outcomes([&](Communicator& world) {
    Communicator busy = world.split(0, 0);
    std::string heard;
    std::thread waits([&] {
      if (world.rank() != 0) return;
      std::vector<int> data(4);
      heard = outcome([&] { world.receive(data, 1, {.deadline = 300ms}); });
      over = true;
    });
    const auto begin = Clock::now();
    std::vector<int> one(1);
    std::string stopped;
    while (stopped.empty() && Clock::now() - begin < 10s) stopped = outcome([&] { busy.allreduce(one); });
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_EQ(stopped.find("TimeoutError"), 0) << stopped;
    waits.join();
    if (world.rank() == 0) {
      EXPECT_EQ(heard, stopped);
    }
  });
  EXPECT_TRUE(over);
  EXPECT_EQ(said, (std::vector<std::string>{"", ""}));
}

// The fewest seen over a tenth of a second: one that has ended and been joined may still be listed for a moment.
int threads_here() {
  int fewest = std::numeric_limits<int>::max();
  for (int i = 0; i < 20; ++i) {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
    fewest = std::min(fewest, count);
    std::this_thread::sleep_for(5ms);
  }
  return fewest;
}

TEST_P(Gone, WhoAbortsIsNamed) {
  Cluster cluster(GetParam(), 3, 20s);
  const auto said = cluster.outcomes([&](Communicator& world) {
    std::vector<float> data(1000);
    Handle pending = world.rank() == 1 ? Handle() : world.allreduce_async(data);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(50ms);
      world.abort("the oar broke");
    }
    pending.wait();
    world.barrier();
  });
  for (const std::string& each : said) {
    EXPECT_EQ(each.find("UsageError: rank 1"), 0) << each;
    EXPECT_TRUE(has(each, "the oar broke")) << each;
  }
}

// Also with something of its own under way, that nobody else will ever end.
TEST_P(Gone, WhoAbortsNeedNotBeIdle) {
  Cluster cluster(GetParam(), 3, 60s);
  const auto begin = Clock::now();
  const auto said = cluster.outcomes([&](Communicator& world) {
    std::vector<float> data(10);
    if (world.rank() == 0) {
      Handle never = world.receive_async(data, 2);
      world.abort("the oar broke");
      never.wait();
    } else {
      world.allreduce(data);
    }
  });
  for (const std::string& each : said) {
    EXPECT_EQ(each.find("UsageError: rank 0"), 0) << each;
    EXPECT_TRUE(has(each, "the oar broke")) << each;
  }
  EXPECT_LT(Clock::now() - begin, 20s);
}

TEST_P(Gone, AnotherThreadMayAbort) {
  Cluster cluster(GetParam(), 2, 60s);
  const auto begin = Clock::now();
  const auto said = cluster.outcomes([&](Communicator& world) {
    if (world.rank() == 1) {
      std::vector<float> data(10);
      world.receive(data, 0);
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      world.abort("no wind");
    });
    const std::string here = outcome([&] {
      std::vector<float> data(10);
      world.receive(data, 1);
    });
    other.join();
    EXPECT_TRUE(has(here, "no wind")) << here;
  });
  EXPECT_TRUE(has(said[1], "UsageError: rank 0") && has(said[1], "no wind")) << said[1];
  EXPECT_LT(Clock::now() - begin, 20s);
}

// What a rank has forked may keep its connections open.
TEST(Fates, AreHeardFromWhoStartedTheRanks) {
  Board board(3);
  const Environment inherited("TRIREME_BOARD", std::to_string(board.descriptor()));
  Cluster cluster(Way::tcp, 3, 60s);
  cluster.run([](Communicator& world) { world.barrier(); });
  board.tell_fate(2, "was killed by signal 9 (Killed)");
  const auto said = cluster.outcomes([](Communicator& world) {
    if (world.rank() != 2) world.barrier();
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(said[rank].find("PeerError: rank 2"), 0) << said[rank];
    EXPECT_TRUE(has(said[rank], "is gone (it was killed by signal 9 (Killed))")) << said[rank];
  }
}

// Both wait to be sent something, and each is told what the other does.
TEST_P(Gone, WhoReceivesWhatIsNotSentIsToldSo) {
  Cluster cluster(GetParam(), 3, 60s);
  const auto said = cluster.outcomes([](Communicator& world) {
    if (world.rank() == 1) return;
    std::vector<float> data(10);
    world.receive(data, 2 - world.rank(), {.deadline = 1500ms});
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(said[rank].find("TimeoutError"), 0) << said[rank];
    const int waiting = has(said[rank], "receive of 10 f32 from rank 2 (message 0) for rank 2") ? 0 : 2;
    const std::string from = std::to_string(2 - waiting);
    EXPECT_TRUE(has(said[rank], "receive of 10 f32 from rank " + from + " (message 0) for rank " + from)) << said[rank];
    EXPECT_TRUE(has(said[rank], " in message 0, receive of 10 f32 from rank " + std::to_string(waiting))) << said[rank];
  }
}

TEST_P(Gone, WhoIsMissingFromASplitIsNamedWithIt) {
  Cluster cluster(GetParam(), 5, 60s);
  const auto said = cluster.outcomes([](Communicator& world) {
    Communicator odd = world.split(world.rank() % 2, -world.rank());
    if (world.rank() == 1) odd.barrier({.deadline = 300ms});
  });
  EXPECT_EQ(said[1].find("TimeoutError"), 0) << said[1];
  EXPECT_TRUE(has(said[1], "barrier (operation 0 of the communicator of ranks 1 and 3) for rank 3")) << said[1];
}

// It does not answer itself, and nobody has started these ranks who could be asked: its neighbours say what it did last.
TEST(Neighbours, SpeakForARankOfAnotherHostThatIsInItsOwnCode) {
  const auto expect_told = [](const std::string& said) {
    EXPECT_EQ(said.find("TimeoutError"), 0) << said;
    EXPECT_TRUE(has(said, " for rank 3 (")) << said;
    EXPECT_TRUE(has(said, ") ended operation 0, barrier")) << said;
    EXPECT_FALSE(has(said, "has not answered")) << said;
  };
  const auto all_but_the_last = [](const std::function<void(Communicator&)>& work) {
    Cluster cluster(Way::two_hosts, 4, 60s);
    return cluster.outcomes([&](Communicator& world) {
      world.barrier();
      if (world.rank() != 3) work(world);
    });
  };
  const auto collective = all_but_the_last([](Communicator& world) { world.barrier({.deadline = 1500ms}); });
  for (const int rank : {0, 1, 2}) expect_told(collective[rank]);
  const auto message = all_but_the_last([](Communicator& world) {
    std::vector<float> data(10);
    if (world.rank() == 1) return;
    world.receive(data, 3, {.deadline = world.rank() == 0 ? 1500ms : 20s});
  });
  expect_told(message[0]);
}

// An exception is not kept back by what it leaves under way; the others hear of it.
TEST_P(Gone, ExceptionsLeaveTheScopeOfHandles) {
  Cluster cluster(GetParam(), 2, 60s);
  const auto begin = Clock::now();
  const auto said = cluster.outcomes([](Communicator& world) {
    std::vector<float> data(10);
    Handle never = world.receive_async(data, 1 - world.rank());
    if (world.rank() == 0) throw UsageError("the mast broke");
    never.wait();
  });
  EXPECT_TRUE(has(said[0], "the mast broke")) << said[0];
  EXPECT_TRUE(has(said[1], "UsageError: rank 0") && has(said[1], "receive of 10 f32 from rank 1, which was under way"))
      << said[1];
  EXPECT_LT(Clock::now() - begin, 20s);
  // What comes to its end by itself is waited for.
  Cluster good(GetParam(), 2, 60s);
  const auto fine = good.outcomes([](Communicator& world) {
    std::vector<float> data(10, 1);
    {
      Handle sum = world.allreduce_async(data);
      if (world.rank() == 0) throw UsageError("the mast broke");
    }
    EXPECT_EQ(data[9], 2);
  });
  EXPECT_TRUE(has(fine[0], "the mast broke")) << fine[0];
  EXPECT_EQ(fine[1], "");
  good.run([](Communicator& world) { world.barrier(); });
}

// Those who miss different ones still say the same.
TEST_P(Gone, OneOfSeveralIsNamedByAll) {
  for (int round = 0; round < 10; ++round) {
    Cluster cluster(GetParam(), 7, 20s);
    const auto begin = Clock::now();
    const auto said = cluster.outcomes([&](Communicator& world) {
      world.barrier();
      if (world.rank() == 2 || world.rank() == 5) {
        world.close();
        return;
      }
      std::vector<float> data(1000);
      world.allreduce(data, Op::sum, {.algorithm = "ring"});
    });
    // A rank that does not run for half a second may hear of one of them before it hears what the others say.
    const bool in_time = Clock::now() - begin < 400ms;
    for (const int rank : {0, 1, 3, 4, 6}) {
      EXPECT_TRUE(has(said[rank], "PeerError: rank 2") || has(said[rank], "PeerError: rank 5")) << said[rank];
      EXPECT_TRUE(!in_time || said[rank] == said[0]) << said[rank] << " and " << said[0];
    }
  }
}

// What others answer then has no place any more in the memory that the caller gave.
TEST_P(Gone, ACallThatFailedLeavesItsMemoryAlone) {
  for (const std::size_t elements : {20'000U, 500'000U, 3'000'000U}) {
    Cluster cluster(GetParam(), 3, 60s);
    cluster.run([&](Communicator& world) {
      std::vector<float> data(elements, 1);
      if (world.rank() == 2) std::this_thread::sleep_for(300ms);  // and comes when the others give up
      const std::string said = outcome([&] { world.allreduce(data, Op::sum, {.deadline = 300ms}); });
      EXPECT_TRUE(said.empty() || said.starts_with("TimeoutError")) << said;
      std::fill(data.begin(), data.end(), 7.0F);
      std::this_thread::sleep_for(300ms);
      EXPECT_EQ(std::count(data.begin(), data.end(), 7.0F), static_cast<std::ptrdiff_t>(elements)) << world.rank();
    });
  }
}

// What a rank lent before its call failed comes back when nobody waits for it any more.
TEST_P(Gone, WhatComesAfterAFailureIsNotTaken) {
  Cluster cluster(GetParam(), 2, 20s);
  cluster.run([](Communicator& world) {
    Window window = world.window(2 << 25);  // more than the system takes for a rank that does not read
    const auto all = window.as<float>();
    const auto part = all.first(all.size() / 2);
    if (world.rank() == 0) std::this_thread::sleep_for(1s);
    const std::string first =
        outcome([&] { world.gather(part, all, 0, {.deadline = world.rank() == 1 ? 100ms : 5s}); });
    std::this_thread::sleep_for(200ms);
    // By TCP, rank 0 may come so late that it hears only that rank 1 is gone.
    const auto fails = [&](const std::string& said) {
      return has(said, "TimeoutError") || (world.rank() == 0 && has(said, "PeerError: rank 1"));
    };
    for (int i = 0; i < 10; ++i) {
      EXPECT_PRED1(fails, outcome([&] { world.allreduce_async(part).wait(); }));
      EXPECT_PRED1(fails, outcome([&] { world.send(part, 1 - world.rank()); }));
    }
    if (world.rank() == 1) {
      EXPECT_TRUE(has(first, "TimeoutError")) << first;
    }
  });
}

TEST_P(Gone, NothingIsLeftAfterAFailure) {
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
  const int before = threads_here();
  {
    Cluster cluster(GetParam(), 4, 20s);
    cluster.outcomes([](Communicator& world) {
      std::vector<float> data(10);
      Handle one = world.reduce_async(data, 0, Op::sum, {.algorithm = "tree", .deadline = 100ms});
      Handle all = world.allreduce_async(data, Op::sum, {.deadline = 100ms});
      if (world.rank() == 0) {
        std::vector<float> more(10);
        Handle two = world.broadcast_async(more, 1, {.deadline = 100ms});
      }
    });
  }
  EXPECT_EQ(threads_here(), before);
}

TEST_P(Gone, WindowsOutliveCommunicators) {
  std::vector<Window> windows(2);
  {
    Cluster cluster(GetParam(), 2, 20s);
    cluster.run([&](Communicator& world) {
      Window& window = windows[world.rank()];
      window = world.window(100'000);
      EXPECT_EQ(window.bytes(), 100'000U);
      std::fill_n(window.as<int>().data(), 25'000, world.rank() + 1);
      world.allreduce(window.as<int>());
      world.barrier();
    });
    cluster.drop(0);
    const std::string said = outcome([&] { cluster[1].barrier(); });
    EXPECT_EQ(said.find("PeerError"), 0) << said;
  }
  for (const Window& window : windows) {
    for (const int one : window.as<int>()) ASSERT_EQ(one, 3);
    window.as<int>()[0] = 0;
  }
}

TEST_P(Gone, WindowsStartAsZeros) {
  Cluster cluster(GetParam(), 1);
  Communicator& world = cluster[0];
  for (const std::size_t bytes : {100UL, 5000UL, 200'000UL, 6'000'000UL, 9000UL}) {
    std::vector<Window> windows;
    for (int i = 0; i < 4; ++i) {
      windows.push_back(world.window(bytes));
      for (const char one : windows.back().as<char>()) ASSERT_EQ(one, 0);
      std::memset(windows.back().data(), 1, bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Gone, ::testing::Values(Way::inproc, Way::shm, Way::tcp, Way::two_hosts),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace trireme::test
