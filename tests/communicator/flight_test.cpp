// Many operations at once: handles waited for in any order or not at all, threads, communicators, messages head-on.
#include "communicator/cluster.h"
#include "communicator/collectives.h"
#include "support/environment.h"
#include "support/random.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

namespace trireme::test {
namespace {

using namespace std::chrono_literals;

class Flight : public ::testing::TestWithParam<Way> {};

/// A handle, what it works on, and what must come of it.
struct Pending {
  std::vector<int> in, out;
  std::vector<int> expected;
  Handle handle;
};

int sum_to(int ranks) { return ranks * (ranks - 1) / 2; }

/// The n-th operation of a program that all ranks run.
std::unique_ptr<Pending> begin(Communicator& world, Random& random, int n) {
  auto pending = std::make_unique<Pending>();
  const int rank = world.rank();
  const int ranks = world.ranks();
  const int elements = random.chance(10) ? random.below(200'000) : random.below(2000);
  const int root = random.below(ranks);
  const auto number = [&](int of, int i) { return of * 1000 + i % 777 + n; };
  const auto fill = [&](std::vector<int>& data, int count, int of) {
    data.resize(count);
    for (int i = 0; i < count; ++i) data[i] = number(of, i);
  };
  const auto sum_of = [&](int i) { return sum_to(ranks) * 1000 + ranks * (i % 777 + n); };
  const int share = elements / ranks;
  switch (random.below(9)) {
    case 0:
      fill(pending->in, elements, rank);
      pending->out = pending->in;
      pending->expected.resize(elements);
      for (int i = 0; i < elements; ++i) pending->expected[i] = sum_of(i);
      pending->handle = world.allreduce_async(pending->out);
      break;
    case 1:
      fill(pending->in, elements, rank);
      pending->out.resize(static_cast<std::size_t>(elements) * ranks);
      for (int peer = 0; peer < ranks; ++peer) {
        for (int i = 0; i < elements; ++i) pending->expected.push_back(number(peer, i));
      }
      pending->handle = world.allgather_async(pending->in, pending->out);
      break;
    case 2:
      fill(pending->out, elements, rank);
      fill(pending->expected, elements, root);
      pending->handle = world.broadcast_async(pending->out, root);
      break;
    case 3:
      fill(pending->in, elements * ranks, rank);
      pending->out.resize(static_cast<std::size_t>(elements));
      pending->expected.resize(elements);
      for (int i = 0; i < elements; ++i) pending->expected[i] = sum_of(i + elements * rank);
      pending->handle = world.reduce_scatter_async(pending->in, pending->out);
      break;
    case 4:
      fill(pending->out, elements, rank);
      pending->expected = pending->out;
      for (int i = 0; rank == root && i < elements; ++i) pending->expected[i] = sum_of(i);
      pending->handle = world.reduce_async(pending->out, root);
      break;
    case 5:
      fill(pending->in, share, rank);
      if (rank == root) pending->out.resize(static_cast<std::size_t>(share) * ranks);
      for (int i = 0; rank == root && i < share * ranks; ++i) {
        pending->expected.push_back(number(i / share, i % share));
      }
      pending->handle = world.gather_async(pending->in, pending->out, root);
      break;
    case 6:
      if (rank == root) fill(pending->in, share * ranks, root);
      pending->out.resize(share);
      for (int i = 0; i < share; ++i) pending->expected.push_back(number(root, share * rank + i));
      pending->handle = world.scatter_async(pending->in, pending->out, root);
      break;
    case 7:
      fill(pending->in, share * ranks, rank);
      pending->out.resize(pending->in.size());
      for (int i = 0; i < share * ranks; ++i) {
        pending->expected.push_back(number(i / share, share * rank + i % share));
      }
      pending->handle = world.all_to_all_async(pending->in, pending->out);
      break;
    default: pending->handle = world.barrier_async(); break;
  }
  return pending;
}

void expect_done(Pending& pending) {
  pending.handle.wait();
  EXPECT_TRUE(pending.handle.done());
  EXPECT_EQ(pending.out == pending.expected, true);
}

/// Many operations, of which each rank waits for whichever it likes.
void fly(Cluster& cluster) {
  const int ranks = cluster.ranks();
  cluster.run([&](Communicator& world) {
    Random program(mix(1, ranks));
    Random own(mix(2, ranks, world.rank()));
    std::vector<std::unique_ptr<Pending>> pending;
    const int count = 30 * kEffort;
    for (int n = 0; n < count; ++n) {
      pending.push_back(begin(world, program, n));
      if (own.chance(20)) std::this_thread::sleep_for(std::chrono::microseconds(own.below(2000)));
      if (program.chance(15)) {
        std::vector<int> one(3, world.rank());
        world.allreduce(one);
        EXPECT_EQ(one[2], sum_to(ranks));
      }
      while (pending.size() > 20 || (!pending.empty() && own.chance(3))) {
        std::swap(pending[own.below(static_cast<int>(pending.size()))], pending.back());
        expect_done(*pending.back());
        pending.pop_back();
      }
    }
    while (!pending.empty()) {
      std::swap(pending[own.below(static_cast<int>(pending.size()))], pending.back());
      if (own.chance(2)) expect_done(*pending.back());
      pending.back()->handle = Handle();  // or it is dropped
      pending.pop_back();
    }
  });
}

TEST_P(Flight, WaitsInAnyOrder) {
  for (const int ranks : {2, 4, 5}) {
    Cluster cluster(GetParam(), ranks);
    fly(cluster);
  }
}

TEST_P(Flight, ThreadsOnTheirOwnCommunicators) {
  constexpr int kRanks = 4;
  Cluster cluster(GetParam(), kRanks);
  cluster.run([&](Communicator& world) {
    std::vector<Communicator> groups = {world.split(0, world.rank()), world.split(0, -world.rank()),
                                        world.split(world.rank() % 2, 0)};
    EXPECT_EQ(groups[1].rank(), kRanks - 1 - world.rank());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      threads.emplace_back([&, i] {
        Communicator& group = groups[i];
        Random program(mix(5, i, i == 2 ? world.rank() % 2 : 0));
        Random own(mix(6, i, world.rank()));
        for (int n = 0; n < 15 * kEffort; ++n) {
          const auto collective = static_cast<Collective>(program.below(kCollectives));
          const auto rows = algorithms(collective);
          const Algorithm& row = rows[program.below(static_cast<int>(rows.size()))];
          const bool forced = program.chance(2) && !row.served && row.accepts(group.ranks());
          const Case c{
              .row = forced ? &row : nullptr,
              .collective = collective,
              .elements = static_cast<std::size_t>(program.chance(8) ? program.below(100'000) : program.below(600)),
              .dtype = program.chance(2) ? Dtype::i32 : Dtype::f64,
              .root = program.below(group.ranks()),
              .buffering = {{own.chance(2), own.chance(2)}},
              .seed = static_cast<std::uint32_t>(n)};
          if (own.chance(10)) std::this_thread::sleep_for(std::chrono::microseconds(own.below(3000)));
          ASSERT_EQ(perform(group, c), "") << c.describe(group.ranks());
        }
      });
    }
    // Messages from one rank to the next on the world meanwhile.
    const int next = (world.rank() + 1) % kRanks;
    const int previous = (world.rank() + kRanks - 1) % kRanks;
    Random sizes(7);
    for (int n = 0; n < 10 * kEffort; ++n) {
      const int size = sizes.chance(10) ? sizes.below(300'000) : sizes.below(1000);
      std::vector<int> out(size, world.rank() + n);
      std::vector<int> in(size);
      Handle sends = world.send_async(out, next);
      world.receive(in, previous);
      EXPECT_EQ(in, std::vector<int>(size, previous + n));
      sends.wait();
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Flight, MessagesHeadOn) {
  Cluster cluster(GetParam(), 2);
  cluster.run([&](Communicator& world) {
    const int peer = 1 - world.rank();
    for (const int size : {0, 1, 1000, 100'000, 250'000 * kEffort}) {
      for (int again = 0; again < 3; ++again) {
        std::vector<int> out(size, world.rank() + again);
        std::vector<int> in(size);
        world.send(out, peer);
        world.receive(in, peer);
        EXPECT_EQ(in == std::vector<int>(size, peer + again), true) << size;
      }
    }
  });
}

TEST_P(Flight, MessagesKeepTheirOrder) {
  Cluster cluster(GetParam(), 3);
  cluster.run([&](Communicator& world) {
    constexpr int kMany = 200;
    std::deque<std::vector<int>> data;
    std::vector<Handle> handles;
    for (int n = 0; n < kMany; ++n) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == world.rank()) continue;
        const int size = n % 50 == 49 ? 90'000 : n;
        handles.push_back(world.send_async(data.emplace_back(size, world.rank() * kMany + n), peer));
      }
    }
    std::deque<std::pair<std::vector<int>, int>> received;
    for (int peer = 0; peer < 3; ++peer) {
      for (int n = 0; n < kMany && peer != world.rank(); ++n) {
        const int size = n % 50 == 49 ? 90'000 : n;
        auto& [in, expected] = received.emplace_back(std::vector<int>(size), peer * kMany + n);
        handles.push_back(world.receive_async(in, peer));
      }
    }
    handles.clear();
    for (const auto& [in, expected] : received) EXPECT_EQ(in, std::vector<int>(in.size(), expected));
  });
}

TEST_P(Flight, RandomPrograms) {
  for (int ranks = 2; ranks <= 7; ++ranks) {
    Cluster cluster(GetParam(), ranks);
    cluster.run([&](Communicator& world) {
      Random program(mix(11, ranks));
      Random own(mix(12, ranks, world.rank()));
      for (int n = 0; n < 12 * kEffort; ++n) {
        const auto collective = static_cast<Collective>(program.below(kCollectives));
        const bool integers = program.chance(2);
        const Case c{
            .collective = collective,
            .elements = static_cast<std::size_t>(program.chance(10) ? program.below(150'000) : program.below(900)),
            .dtype = integers ? Dtype::i64 : Dtype::f32,
            .op = program.pick(std::vector{Op::sum, Op::average, Op::min, Op::product}),
            .root = program.below(ranks),
            .buffering = {{own.chance(2), own.chance(2)}},
            .seed = static_cast<std::uint32_t>(n)};
        if (own.chance(15)) std::this_thread::sleep_for(std::chrono::microseconds(own.below(1500)));
        ASSERT_EQ(perform(world, c), "") << c.describe(ranks);
      }
    });
  }
}

TEST_P(Flight, HandlesMove) {
  Cluster cluster(GetParam(), 2);
  cluster.run([](Communicator& world) {
    std::vector<int> one(5, 1);
    std::vector<int> two(5, 2);
    Handle handle = world.allreduce_async(one);
    handle = world.allreduce_async(two);
    Handle moved = std::move(handle);
    moved.wait();
    moved.wait();
    EXPECT_EQ(two[4], 4);
    EXPECT_TRUE(Handle().done());
    world.barrier();
    EXPECT_EQ(one[4], 2);
  });
}

// Communicators that end as soon as their only call has, while another thread of the rank makes progress for all.
TEST_P(Flight, CommunicatorsThatEndAtOnce) {
  Cluster cluster(GetParam(), 2);
  cluster.run([](Communicator& world) {
    constexpr int kRounds = 200;
    Communicator other = world.split(0, world.rank());
    std::thread driver([&] {
      for (int i = 0; i < 5 * kRounds; ++i) other.barrier();
    });
    for (int i = 0; i < kRounds; ++i) {
      Communicator brief = world.split(0, world.rank());
      int value = i;
      if (world.rank() == 0) {
        brief.send(std::span(&value, 1), 1);
      } else {
        value = -1;
        brief.receive(std::span(&value, 1), 0);
        EXPECT_EQ(value, i);
      }
    }
    driver.join();
  });
}

// What a rank was lent it gives back even if it is done by then, and there was no room in the ring to say so. So many
// ranks are rarely all at work, and what those that have no window send fills the rings.
TEST_P(Flight, WhoIsDoneKeepsNobodyWaiting) {
  constexpr int kRanks = 8;
  constexpr std::size_t kElements = 300'007;
  Cluster cluster(GetParam(), kRanks, 20s);
  std::barrier outside(kRanks);
  const auto work = [&](Communicator& world) {
    Window window = world.window(sizeof(std::int64_t) * kElements);
    std::vector<std::int64_t> ordinary(kElements);
    for (int round = 0; round < 20 * kEffort; ++round) {
      const bool lends = mix(8, round, world.rank()) % 2 == 0;
      const std::span<std::int64_t> data = lends ? window.as<std::int64_t>() : std::span(ordinary);
      std::fill(data.begin(), data.end(), world.rank());
      world.allreduce(data, Op::sum, {.algorithm = "swing"});
      EXPECT_EQ(data.back(), sum_to(kRanks));
      outside.arrive_and_wait();
    }
  };
  cluster.run([&](Communicator& world) {
    try {
      work(world);
    } catch (const Error&) {
      outside.arrive_and_drop();
      throw;
    }
  });
}

/// TCP connections that this process has both ends of, by the system's tables.
int connections_within() {
  std::set<std::string> own;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    own.insert(std::filesystem::read_symlink(file, gone).string());
  }
  std::ifstream table("/proc/self/net/tcp");
  int ends = 0;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    const std::vector<std::string> fields{std::istream_iterator<std::string>(words), {}};
    constexpr std::size_t kState = 3, kInode = 9;
    ends += fields.size() > kInode && fields[kState] == "01" && own.contains("socket:[" + fields[kInode] + "]");
  }
  return ends / 2;
}

TEST(Connections, OfAPairAreAsManyAsAskedFor) {
  for (const int each : {1, 3}) {
    const Environment asked("TRIREME_CONNECTIONS", std::to_string(each));
    Cluster cluster(Way::tcp, 3);
    fly(cluster);
    cluster.run([](Communicator& world) {
      std::vector<int> data(1 << 21, world.rank());
      world.allreduce(data, Op::sum, {.algorithm = "ring"});
      EXPECT_EQ(data, std::vector<int>(data.size(), 3));
    });
    EXPECT_EQ(connections_within(), 3 * each);
  }
}

TEST(Connections, AreRefusedWhereTheyAreNoNumber) {
  for (const std::string wrong : {"0", "65", "-1", "two", "2x", " 2", "99999999999"}) {
    const Environment asked("TRIREME_CONNECTIONS", wrong);
    const std::string said = usage_error([] { const Cluster cluster(Way::tcp, 2); });
    EXPECT_NE(said.find("TRIREME_CONNECTIONS is '" + wrong + "'; it must be a number from 1 to 64"), std::string::npos)
        << said;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Flight, ::testing::ValuesIn(kWays),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace trireme::test
