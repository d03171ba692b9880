// Ranks that call different things: all of them hear so, with both calls, soon.
#include "communicator/cluster.h"
#include "communicator/collectives.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace trireme::test {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

class Disagree : public ::testing::TestWithParam<Way> {
 protected:
  using Call = std::function<void(Communicator&)>;

  /// All ranks but one make the first call, that one the other, and then all a barrier: what is said has all `words`.
  void expect_found(int ranks, int odd_one, const Call& call, const Call& other,
                    const std::vector<std::string>& words) {
    SCOPED_TRACE(testing::Message() << "rank " << odd_one << " of " << ranks);
    Cluster cluster(GetParam(), ranks, seconds(30));
    const auto begin = Clock::now();
    std::vector<std::string> again(ranks);
    const auto said = cluster.outcomes([&](Communicator& world) {
      try {
        world.rank() == odd_one ? other(world) : call(world);
        world.barrier();
      } catch (const Error&) {
        again[world.rank()] = outcome([&] { world.barrier(); });
        throw;
      }
    });
    EXPECT_LT(Clock::now() - begin, kSoon);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(said[rank].find("UsageError: ranks disagree"), 0) << "rank " << rank << ": " << said[rank];
      for (const std::string& word : words) {
        EXPECT_NE(said[rank].find(word), std::string::npos) << word << "\n" << said[rank];
      }
      EXPECT_EQ(again[rank], said[rank]);
      EXPECT_EQ(said[rank], said[0]);
    }
  }

  static constexpr seconds kSoon{kEffort == 1 ? 25 : 8};
  static inline std::vector<float> memory() { return std::vector<float>(3000); }
};

TEST_P(Disagree, Collectives) {
  expect_found(
      3, 1,
      [](Communicator& w) {
        auto m = memory();
        w.allreduce(m);
      },
      [](Communicator& w) { w.barrier(); }, {"rank 1", "allreduce of 3000 f32", "barrier", "operation 0"});
  expect_found(
      2, 0,
      [](Communicator& w) {
        auto m = memory();
        w.broadcast(m, 1);
      },
      [](Communicator& w) {
        auto m = memory();
        w.reduce(m, 0);
      },
      {"rank 0", "rank 1", "broadcast", "reduce"});
}

TEST_P(Disagree, Sizes) {
  expect_found(
      4, 3,
      [](Communicator& w) {
        auto m = memory();
        w.allreduce(m);
      },
      [](Communicator& w) {
        std::vector<float> m(2999);
        w.allreduce(m);
      },
      {"rank 3", "of 3000 f32", "of 2999 f32"});
  expect_found(
      2, 1,
      [](Communicator& w) {
        std::vector<float> m(1'000'000);
        w.allreduce(m);
      },
      [](Communicator& w) {
        std::vector<float> m(1'000'001);
        w.allreduce(m);
      },
      {"of 1000000 f32", "of 1000001 f32"});
}

TEST_P(Disagree, DtypesAndOps) {
  expect_found(
      3, 2,
      [](Communicator& w) {
        auto m = memory();
        w.allreduce(m);
      },
      [](Communicator& w) {
        std::vector<int> m(3000);
        w.allreduce(m);
      },
      {"rank 2", "3000 f32", "3000 i32"});
  expect_found(
      3, 0,
      [](Communicator& w) {
        auto m = memory();
        w.allreduce(m, Op::max);
      },
      [](Communicator& w) {
        auto m = memory();
        w.allreduce(m, Op::min);
      },
      {"rank 0", "max", "min"});
}

TEST_P(Disagree, Algorithms) {
  expect_found(
      4, 1,
      [](Communicator& w) {
        auto m = memory();
        w.allreduce(m, Op::sum, {.algorithm = "ring"});
      },
      [](Communicator& w) {
        auto m = memory();
        w.allreduce(m, Op::sum, {.algorithm = "tree"});
      },
      {"rank 1", "by ring", "by tree"});
}

TEST_P(Disagree, Roots) {
  for (const int ranks : {2, 3, 5}) {
    for (const std::string_view algorithm : {"tree", "chain"}) {
      expect_found(
          ranks, ranks - 1,
          [=](Communicator& w) {
            auto m = memory();
            w.reduce(m, 0, Op::sum, {.algorithm = algorithm});
          },
          [=](Communicator& w) {
            auto m = memory();
            w.reduce(m, ranks - 1, Op::sum, {.algorithm = algorithm});
          },
          {"root 0", "root " + std::to_string(ranks - 1)});
    }
    expect_found(
        ranks, 0,
        [=](Communicator& w) {
          auto m = memory();
          w.broadcast(m, ranks - 1);
        },
        [](Communicator& w) {
          auto m = memory();
          w.broadcast(m, 0);
        },
        {"root 0", "broadcast"});
    expect_found(
        ranks, 0,
        [=](Communicator& w) {
          auto m = memory();
          std::vector<float> out(3000U * ranks);
          w.gather(m, out, ranks - 1);
        },
        [=](Communicator& w) {
          auto m = memory();
          std::vector<float> out(3000U * ranks);
          w.gather(m, out, 0);
        },
        {"root 0", "gather"});
  }
}

TEST_P(Disagree, Order) {
  const auto first = [](Communicator& w) {
    auto m = memory();
    Handle one = w.allreduce_async(m);
    auto n = memory();
    Handle two = w.broadcast_async(n, 0);
    one.wait();
    two.wait();
  };
  const auto second = [](Communicator& w) {
    auto n = memory();
    Handle two = w.broadcast_async(n, 0);
    auto m = memory();
    Handle one = w.allreduce_async(m);
    one.wait();
    two.wait();
  };
  expect_found(3, 1, first, second, {"allreduce", "broadcast"});
}

TEST_P(Disagree, UnevenShares) {
  const std::vector<std::size_t> other = {1000, 900, 1100};
  const std::vector<std::size_t> even = {1000, 1000, 1000};
  expect_found(
      3, 2,
      [&](Communicator& w) {
        std::vector<float> m(1000), out(3000);
        w.allgather(m, out, even);
      },
      [&](Communicator& w) {
        std::vector<float> m(1100), out(3000);
        w.allgather(m, out, other);
      },
      {"allgather", "with other counts"});
  expect_found(
      3, 2,
      [&](Communicator& w) {
        auto m = memory(), out = memory();
        w.all_to_all(m, even, out, even);
      },
      [&](Communicator& w) {
        const std::vector<std::size_t> to = {1001, 999, 1000};
        auto m = memory(), out = memory();
        w.all_to_all(m, to, out, even);
      },
      {"all_to_all", "which expects 1000"});
}

// Counts of the same sum whose hashes are the same too.
TEST_P(Disagree, UnevenSharesThatLookAlike) {
  expect_found(
      2, 1,
      [&](Communicator& w) {
        std::vector<float> m(500'000), out(1'000'000);
        w.allgather(m, out, std::vector<std::size_t>{500'000, 500'000});
      },
      [&](Communicator& w) {
        std::vector<float> m(396'345), out(1'000'000);
        w.allgather(m, out, std::vector<std::size_t>{603'655, 396'345});
      },
      {"allgather of f32 in uneven shares", "which expects"});
}

TEST_P(Disagree, Splits) {
  expect_found(
      2, 1, [](Communicator& w) { (void)w.split(0, 0); },
      [](Communicator& w) {
        std::vector<std::int64_t> m(3), out(6);
        w.allgather(m, out);
      },
      {"called split", "allgather of 6 i64"});
}

TEST_P(Disagree, LargeMessages) {
  expect_found(
      3, 1,
      [](Communicator& w) {
        std::vector<float> m(3'000'000), out(3'000'000);
        w.all_to_all(m, out);
      },
      [](Communicator& w) {
        std::vector<float> m(1'000'000), out(3'000'000);
        w.allgather(m, out);
      },
      {"all_to_all of 3000000 f32", "allgather of 3000000 f32"});
}

// Whoever comes first: a root waits for nothing, and may have been sent what it does not want.
TEST_P(Disagree, RootsOfWhichOneIsLate) {
  for (const int late : {0, 1}) {
    const auto call = [late](Communicator& w) {
      if (w.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::vector<float> m(3);
      w.broadcast(m, w.rank());
    };
    expect_found(2, 1, call, call, {"broadcast of 3 f32, root 0", "broadcast of 3 f32, root 1"});
  }
}

// Nobody waits for anybody in these, and nothing is called afterwards that could show it.
TEST_P(Disagree, InTheLastCallShowsWhenTheyClose) {
  // In the last of these the helper thread may find it out, when nobody waits for anything any more.
  for (const bool asynchronous : {false, true, true, true}) {
    Cluster cluster(GetParam(), 2, seconds(30));
    std::barrier called(2);
    const auto said = cluster.outcomes([&](Communicator& w) {
      std::vector<float> m(3);
      try {
        if (asynchronous) {
          Handle handle = w.broadcast_async(m, w.rank());
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          handle.wait();
        } else {
          w.broadcast(m, w.rank());
        }
      } catch (const UsageError&) {
        called.arrive_and_drop();
        throw;
      }
      called.arrive_and_wait();
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // what was sent is on its way
      w.close();
    });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(said[rank].find("UsageError: ranks disagree"), 0) << "rank " << rank << ": " << said[rank];
      EXPECT_NE(said[rank].find("broadcast of 3 f32, root 1"), std::string::npos)
          << "rank " << rank << ": " << said[rank];
    }
  }
}

TEST_P(Disagree, Messages) {
  expect_found(
      2, 1,
      [](Communicator& w) {
        auto m = memory();
        w.send(m, 1);
      },
      [](Communicator& w) {
        std::vector<float> m(17);
        w.receive(m, 0);
      },
      {"send of 3000 f32 to rank 1", "receive of 17 f32 from rank 0", "message 0 between them"});
  expect_found(
      3, 1,
      [](Communicator& w) {
        std::vector<float> m(500'000);
        if (w.rank() == 0) w.send(m, 1);
      },
      [](Communicator& w) {
        std::vector<double> m(500'000);
        w.receive(m, 0);
      },
      {"500000 f32", "500000 f64"});
}

// Sizes of one class are chosen for alike, whichever of them comes first, even if it is only asked about.
TEST_P(Disagree, NotBecauseOneRankAskedWhatWouldRun) {
  for (const auto& [asked, called] : {std::pair(4096, 5000), std::pair(5000, 4096)}) {
    for (const Collective collective : {Collective::allreduce, Collective::broadcast, Collective::reduce}) {
      Cluster cluster(GetParam(), 4, seconds(30));
      const std::string said = cluster[0].explain(trireme::to_string(collective), asked);
      const Case c{.collective = collective, .elements = static_cast<std::size_t>(called), .dtype = Dtype::u8};
      cluster.run([&](Communicator& world) {
        EXPECT_EQ(perform(world, c), "") << c.describe(4) << ", rank " << world.rank() << ", after: " << said;
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Disagree, ::testing::Values(Way::inproc, Way::shm, Way::tcp, Way::two_hosts),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace trireme::test
