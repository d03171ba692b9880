// Strings and JSON between ranks.
#include "communicator/cluster.h"
#include "trireme/json_objects.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::test {
namespace {

class Objects : public ::testing::TestWithParam<std::tuple<Way, int>> {
 protected:
  Cluster cluster{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

/// Bytes that depend on rank and index, zeros among them.
std::string bytes_of_rank(int rank, std::size_t length) {
  std::string bytes(length, '\0');
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>((i * 7 + rank * 31) % 256);
  return bytes;
}

TEST_P(Objects, AreGatheredWhateverTheirLengths) {
  cluster.run([](Communicator& world) {
    const auto length = [](int rank) { return rank % 2 == 0 ? std::size_t(rank) * 1000 : std::size_t{1}; };
    const auto all = all_gather_object(world, bytes_of_rank(world.rank(), length(world.rank())));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(world.ranks()));
    for (int rank = 0; rank < world.ranks(); ++rank) EXPECT_EQ(all[rank], bytes_of_rank(rank, length(rank)));
  });
}

TEST_P(Objects, MayAllBeEmpty) {
  cluster.run([](Communicator& world) {
    EXPECT_EQ(all_gather_object(world, ""), std::vector<std::string>(world.ranks()));
    std::string object = world.rank() == 0 ? "" : "something";
    broadcast_object(world, object, 0);
    EXPECT_EQ(object, "");
  });
}

TEST_P(Objects, MayBeLong) {
  constexpr std::size_t kLength = 3 << 20;
  cluster.run([](Communicator& world) {
    // From the last rank alone, and then from there to all.
    const int last = world.ranks() - 1;
    const std::string mine = world.rank() == last ? bytes_of_rank(last, kLength) : "";
    const auto all = all_gather_object(world, mine);
    EXPECT_TRUE(all[last] == bytes_of_rank(last, kLength));
    std::string object = mine;
    broadcast_object(world, object, last);
    EXPECT_TRUE(object == bytes_of_rank(last, kLength));
  });
}

TEST_P(Objects, AreBroadcastFromEachRoot) {
  cluster.run([](Communicator& world) {
    for (int root = 0; root < world.ranks(); ++root) {
      std::string object = bytes_of_rank(world.rank(), 300 + world.rank());
      broadcast_object(world, object, root);
      EXPECT_EQ(object, bytes_of_rank(root, 300 + root));
    }
  });
}

TEST_P(Objects, MayBeJson) {
  cluster.run([](Communicator& world) {
    const auto value = [](int rank) {
      return nlohmann::json{{"rank", rank}, {"loss", 0.1 * rank}, {"not UTF-8", "\xff"}, {"list", {1, nullptr, true}}};
    };
    const auto all = all_gather_object(world, value(world.rank()));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(world.ranks()));
    for (int rank = 0; rank < world.ranks(); ++rank) EXPECT_EQ(all[rank], value(rank));

    const int root = world.ranks() - 1;
    nlohmann::ordered_json settings;
    if (world.rank() == root) settings = {{"z", INFINITY}, {"a", 2}};
    broadcast_object(world, settings, root);
    EXPECT_EQ(settings, (nlohmann::ordered_json{{"z", INFINITY}, {"a", 2}}));
    EXPECT_EQ(settings.begin().key(), "z");
  });
}

TEST_P(Objects, WithAWrongRootAreRefused) {
  for (const std::string& outcome : cluster.outcomes([](Communicator& world) {
         std::string object;
         broadcast_object(world, object, world.ranks());
       })) {
    EXPECT_TRUE(outcome.starts_with("UsageError")) << outcome;
  }
}

TEST(JsonObjects, SayWhoSentSomethingElse) {
  Cluster cluster(Way::inproc, 3);
  int failures = 0;
  for (const std::string& outcome : cluster.outcomes([](Communicator& world) {
         if (world.rank() == 1) {
           all_gather_object(world, "\xff no JSON");
         } else {
           all_gather_object(world, nlohmann::json(1));
         }
       })) {
    failures += outcome.find("rank 1 sent something else") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(failures, 2);  // the one that sent it asked for strings
}

INSTANTIATE_TEST_SUITE_P(Ranks, Objects,
                         ::testing::Combine(::testing::Values(Way::inproc, Way::tcp), ::testing::Values(1, 3, 5)),
                         [](const auto& test) {
                           return to_string(std::get<0>(test.param)) + "_" + std::to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace trireme::test
