// Shares of different sizes; the largest buffers; and random floats.
#include "communicator/cluster.h"
#include "communicator/collectives.h"
#include "support/random.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace trireme::test {
namespace {

class Elements : public ::testing::TestWithParam<Way> {
 protected:
  static const Algorithm* row(Collective collective, std::string_view name) {
    for (const Algorithm& one : algorithms(collective)) {
      if (one.name == name) return &one;
    }
    ADD_FAILURE() << name;
    return nullptr;
  }
};

void expect_right(Communicator& world, const Case& c) {
  EXPECT_EQ(perform(world, c), "") << "rank " << world.rank() << ": " << c.describe(world.ranks());
}

TEST_P(Elements, UnevenAllgather) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Cluster cluster(GetParam(), ranks);
    cluster.run([&](Communicator& world) {
      Random random(mix(3, ranks));
      for (int again = 0; again < 6; ++again) {
        std::vector<std::size_t> counts(ranks);
        const int most = again == 5 ? 200'000 : 300;
        for (std::size_t& one : counts) one = random.chance(3) ? 0 : random.below(most);
        std::vector<std::size_t> begins(ranks + 1);
        std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
        const auto expected = [&](std::size_t i) {
          int from = 0;
          while (i >= begins[from + 1]) ++from;
          return value(again, from, i - begins[from], 100'000);
        };
        const auto own = [&](std::size_t i) { return value(again, world.rank(), i, 100'000); };
        for (const Algorithm& algorithm : algorithms(Collective::allgather)) {
          const bool window = random.chance(2);
          Memory in(world, counts[world.rank()], Dtype::i32, window);
          const Memory out(world, begins.back(), Dtype::i32, !window);
          in.fill(own);
          world.allgather(in.buffer(), out.buffer(), counts, {.algorithm = algorithm.name});
          EXPECT_EQ(out.differs(expected), "") << algorithm.name << " " << ranks << " " << again;
          EXPECT_EQ(in.differs(own), "");
        }
      }
    });
  }
}

TEST_P(Elements, UnevenAllToAll) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    Cluster cluster(GetParam(), ranks);
    cluster.run([&](Communicator& world) {
      Random random(mix(4, ranks));
      for (int again = 0; again < 6; ++again) {
        const int most = again == 5 ? 100'000 : 300;
        std::vector<std::vector<std::size_t>> sizes(ranks, std::vector<std::size_t>(ranks));  // from, to
        for (auto& row : sizes) {
          for (std::size_t& one : row) one = random.chance(3) ? 0 : random.below(most);
        }
        const std::vector<std::size_t>& to = sizes[world.rank()];
        std::vector<std::size_t> from(ranks);
        for (int peer = 0; peer < ranks; ++peer) from[peer] = sizes[peer][world.rank()];
        const auto own = [&](std::size_t i) { return value(again, world.rank(), i, 100'000); };
        const bool window = random.chance(2);
        Memory in(world, std::accumulate(to.begin(), to.end(), std::size_t{0}), Dtype::f32, window);
        const Memory out(world, std::accumulate(from.begin(), from.end(), std::size_t{0}), Dtype::f32, !window);
        in.fill(own);
        world.all_to_all(in.buffer(), to, out.buffer(), from);
        const auto expected = [&](std::size_t i) {
          int peer = 0;
          while (i >= from[peer]) i -= from[peer++];
          for (int before = 0; before < world.rank(); ++before) i += sizes[peer][before];
          return value(again, peer, i, 100'000);
        };
        EXPECT_EQ(out.differs(expected), "") << ranks << " " << again;
        EXPECT_EQ(in.differs(own), "");
      }
    });
  }
}

TEST_P(Elements, TenMillion) {
  const std::size_t many = kEffort == 1 ? 1'000'003 : 10'000'000;
  for (const int ranks : {2, 3}) {
    Cluster cluster(GetParam(), ranks);
    cluster.run([&](Communicator& world) {
      const auto p = static_cast<std::size_t>(ranks);
      expect_right(world, {.collective = Collective::allreduce, .elements = many, .buffering = {{true, true}}});
      expect_right(world, {.row = row(Collective::allreduce, "ring"),
                           .collective = Collective::allreduce,
                           .elements = many,
                           .dtype = Dtype::bf16,
                           .buffering = {{false, false}, {true, true}}});
      expect_right(world, {.collective = Collective::broadcast, .elements = many, .dtype = Dtype::i8, .root = 1});
      expect_right(world, {.collective = Collective::reduce_scatter, .elements = many / p});
      expect_right(world, {.collective = Collective::allgather, .elements = many / p, .buffering = {{true, true}}});
      expect_right(world, {.collective = Collective::all_to_all, .elements = many / p, .buffering = {{false, true}}});
      expect_right(world, {.collective = Collective::reduce, .elements = many, .dtype = Dtype::f16, .root = 1});
      expect_right(world, {.collective = Collective::gather, .elements = many / p, .dtype = Dtype::i32});
      expect_right(world,
                   {.collective = Collective::scatter, .elements = many / p, .root = 1, .buffering = {{true, false}}});
    });
  }
}

// The same on other numbers of ranks, of which each checks the sum of all.
TEST_P(Elements, TenMillionOnManyRanks) {
  const std::size_t many = kEffort == 1 ? 1'000'003 : 10'000'000;
  for (const int ranks : {1, 4, 5, 6, 7, 8, 9}) {
    if (ranks > 5 && GetParam() != Way::shm) continue;
    Cluster cluster(GetParam(), ranks);
    cluster.run([&](Communicator& world) {
      expect_right(world, {.collective = Collective::allreduce,
                           .elements = many,
                           .dtype = Dtype::i8,
                           .buffering = {{ranks % 2 == 0, ranks % 2 == 0}}});
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, Elements, ::testing::ValuesIn(kWays),
                         [](const auto& test) { return to_string(test.param); });

// Random floats: near the true sum, and the same bits wherever the verifier says so, over every transport, in windows
// or not, in place or not, and again.
class Bits : public ::testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(Bits, AreThoseOfTheProgram) {
  const auto [ranks, elements] = GetParam();
  const auto given = [](int rank, std::size_t i) {
    return static_cast<float>(static_cast<double>(mix(9, rank, i) >> 11U) * 0x1p-53 - 0.5);
  };
  using Result = std::vector<std::vector<float>>;  // by rank
  std::map<std::string, Result> first;
  for (const Way way : {Way::inproc, Way::shm, Way::tcp, Way::two_hosts, Way::interleaved}) {
    Cluster cluster(way, ranks);
    for (const Algorithm& row : algorithms(Collective::allreduce)) {
      if (row.served || !row.accepts(ranks)) continue;
      const bool same_bits = verify(make_schedule(row, {.ranks = ranks})).same_bits;
      for (int manner = 0; manner < 5; ++manner) {
        Result result(ranks);
        cluster.run([&](Communicator& world) {
          const bool window = manner % 2 == 1 || (manner == 4 && world.rank() % 2 == 0);
          const bool in_place = manner / 2 == 1 || (manner == 4 && world.rank() % 3 == 0);
          const Memory in(world, elements, Dtype::f32, window);
          const Memory other(world, elements, Dtype::f32, window);
          auto* data = reinterpret_cast<float*>(in.data());
          for (std::size_t i = 0; i < elements; ++i) data[i] = given(world.rank(), i);
          const Memory& out = in_place ? in : other;
          world.allreduce(in.buffer(), out.buffer(), Op::sum, {.algorithm = row.name});
          const auto* sums = reinterpret_cast<const float*>(out.data());
          result[world.rank()].assign(sums, sums + elements);
        });
        for (std::size_t i = 0; i < elements; ++i) {
          double sum = 0;
          for (int rank = 0; rank < ranks; ++rank) sum += given(rank, i);
          ASSERT_NEAR(result[0][i], sum, 1e-6) << row.name;
        }
        for (int rank = 1; rank < ranks && same_bits; ++rank) {
          EXPECT_EQ(std::memcmp(result[0].data(), result[rank].data(), elements * sizeof(float)), 0)
              << row.name << " on rank " << rank << " over " << to_string(way);
        }
        // Its trees are packed for the network, so they may be others where that is.
        const std::string network = row.name == "blink" ? to_string(way) : "";
        const auto [known, fresh] = first.try_emplace(std::string(row.name) + network, result);
        for (int rank = 0; rank < ranks && !fresh; ++rank) {
          EXPECT_EQ(std::memcmp(known->second[rank].data(), result[rank].data(), elements * sizeof(float)), 0)
              << row.name << " on rank " << rank << " over " << to_string(way) << ", manner " << manner;
        }
      }
    }
  }
}

// With four there is swing, too; and blocks of more than one segment.
INSTANTIATE_TEST_SUITE_P(All, Bits,
                         ::testing::Values(std::tuple(5, std::size_t{20011}), std::tuple(4, std::size_t{20011}),
                                           std::tuple(3, std::size_t{kEffort > 1 ? 300'007 : 70'001})),
                         [](const auto& test) {
                           return fmt::format("{}_ranks_{}", std::get<0>(test.param), std::get<1>(test.param));
                         });

}  // namespace
}  // namespace trireme::test
