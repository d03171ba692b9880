// Which samples each rank gets: the joined batches are those of one process, and a stopped epoch goes on where it was.
#include "trireme/torch/sampler.h"

#include "communicator/start.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <torch/data.h>
#include <torch/serialize.h>

namespace trireme {
namespace {

using Batch = std::vector<std::size_t>;

std::vector<Batch> batches(DistributedSampler& sampler, std::size_t batch_size) {
  std::vector<Batch> all;
  while (auto batch = sampler.next(batch_size)) all.push_back(*batch);
  return all;
}

std::vector<Batch> epoch_of(std::size_t samples, int rank, int ranks, std::size_t batch_size, std::size_t epoch = 0,
                            const DistributedSamplerOptions& options = {}) {
  DistributedSampler sampler(samples, rank, ranks, options);
  sampler.set_epoch(epoch);
  sampler.reset();
  return batches(sampler, batch_size);
}

std::string saved(const DistributedSampler& sampler) {
  torch::serialize::OutputArchive archive;
  sampler.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void load(DistributedSampler& sampler, const std::string& bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  sampler.load(archive);
}

/// What the ranks' batches of one step are together, in the order of one process.
Batch joined(const std::vector<std::vector<Batch>>& ranks, std::size_t step) {
  Batch all;
  for (std::size_t i = 0; i < ranks[0][step].size(); ++i) {
    for (const auto& rank : ranks) all.push_back(rank[step][i]);
  }
  return all;
}

TEST(Sampler, JoinedBatchesAreThoseOfOneProcess) {
  for (const std::size_t samples : {5, 60, 61, 64, 67, 101}) {
    for (const int ranks : {1, 3, 5}) {
      for (const bool shuffle : {false, true}) {
        const DistributedSamplerOptions options{.shuffle = shuffle, .seed = 3};
        const auto alone = epoch_of(samples, 0, 1, 4 * ranks, 2, options);
        std::vector<std::vector<Batch>> all;
        for (int rank = 0; rank < ranks; ++rank) all.push_back(epoch_of(samples, rank, ranks, 4, 2, options));
        ASSERT_EQ(all[0].size(), alone.size());
        for (std::size_t step = 0; step < alone.size(); ++step) {
          for (const auto& rank : all) ASSERT_EQ(rank[step].size(), all[0][step].size());
          Batch batch = joined(all, step);
          if (step + 1 == alone.size()) {  // filled up from the start
            const std::size_t filling = batch.size() - alone[step].size();
            ASSERT_LT(filling, static_cast<std::size_t>(ranks));
            for (std::size_t i = 0; i < filling; ++i) ASSERT_EQ(batch[alone[step].size() + i], alone[0][i]);
            batch.resize(alone[step].size());
          }
          ASSERT_EQ(batch, alone[step]) << samples << " samples, " << ranks << " ranks, step " << step;
        }
      }
    }
  }
}

TEST(Sampler, EverySampleComesOnceWithinAnEpoch) {
  for (const std::size_t samples : {1, 2, 100, 4099}) {
    Batch all = epoch_of(samples, 0, 1, samples).at(0);
    std::sort(all.begin(), all.end());
    for (std::size_t i = 0; i < samples; ++i) ASSERT_EQ(all[i], i);
  }
}

TEST(Sampler, EpochAndSeedGiveTheOrder) {
  std::set<Batch> orders;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (const std::size_t epoch : {0, 1, 2}) orders.insert(epoch_of(50, 0, 1, 50, epoch, {.seed = seed}).at(0));
  }
  EXPECT_EQ(orders.size(), 9U);
  EXPECT_EQ(epoch_of(50, 0, 1, 50, 7), epoch_of(50, 0, 1, 50, 7));
  // Checkpoints depend on it: these are the same on every machine, for ever.
  EXPECT_EQ(epoch_of(8, 0, 1, 8, 1, {.seed = 42}).at(0), (Batch{3, 4, 1, 2, 5, 0, 7, 6}));
}

TEST(Sampler, IsFair) {
  constexpr int kEpochs = 6000;
  std::array<std::array<int, 5>, 5> at{};
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Batch order = epoch_of(5, 0, 1, 5, epoch).at(0);
    for (std::size_t place = 0; place < 5; ++place) ++at[place][order[place]];
  }
  for (const auto& place : at) {
    for (const int count : place) EXPECT_NEAR(count, kEpochs / 5, 6 * 31);  // six standard deviations
  }
}

TEST(Sampler, DropsWhatIsLeftOver) {
  for (int rank = 0; rank < 3; ++rank) {
    const auto dropped = epoch_of(11, rank, 3, 2, 0, {.drop_last = true});
    const auto filled = epoch_of(11, rank, 3, 2);
    ASSERT_EQ(dropped.size(), 2U);
    EXPECT_EQ(dropped[0], filled[0]);
    EXPECT_EQ(dropped[1].size(), 1U);
    EXPECT_EQ(dropped[1][0], filled[1][0]);
    EXPECT_EQ(filled[1].size(), 2U);
  }
}

TEST(Sampler, RefusesADatasetSmallerThanTheRanks) {
  for (const bool drop_last : {false, true}) {
    const std::string message = test::usage_error([&] { DistributedSampler(4, 0, 5, {.drop_last = drop_last}); });
    EXPECT_NE(message.find("4 samples is too small for 5 ranks"), std::string::npos) << message;
  }
  EXPECT_NE(test::usage_error([] { DistributedSampler(4, 3, 3); }).find("rank 3 of 3"), std::string::npos);
  DistributedSampler sampler(5, 0, 5);
  EXPECT_NE(test::usage_error([&] { sampler.reset(4); }).find("4 samples"), std::string::npos);
}

TEST(Sampler, TakesRankAndRanksFromACommunicator) {
  std::vector<Communicator> worlds = threads_world(3);
  DistributedSampler sampler(30, worlds[2]);
  DistributedSampler same(30, 2, 3);
  EXPECT_EQ(batches(sampler, 4), batches(same, 4));
}

TEST(Sampler, GoesOnWhereItWasSaved) {
  for (const int ranks : {1, 3, 5}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const DistributedSamplerOptions options{.seed = 9};
      const auto whole = epoch_of(67, rank, ranks, 4, 5, options);
      for (std::size_t done = 0; done <= whole.size(); ++done) {
        DistributedSampler first(67, rank, ranks, options);
        first.set_epoch(5);
        first.reset();
        for (std::size_t i = 0; i < done; ++i) first.next(4);
        EXPECT_EQ(first.position() >= 67, done == whole.size());

        DistributedSampler second(67, rank, ranks, options);
        load(second, saved(first));
        EXPECT_EQ(second.epoch(), 5U);
        second.set_epoch(second.epoch());
        second.reset();
        second.reset();
        EXPECT_EQ(batches(second, 4),
                  std::vector<Batch>(whole.begin() + static_cast<std::ptrdiff_t>(done), whole.end()));

        // The next epochs are whole ones, whether it is said which or not.
        second.reset();
        EXPECT_EQ(batches(second, 4), whole);
        second.set_epoch(6);
        second.reset();
        EXPECT_EQ(batches(second, 4), epoch_of(67, rank, ranks, 4, 6, options));
      }
    }
  }
}

TEST(Sampler, GoesOnWithAnotherNumberOfRanks) {
  // Three ranks train on 24 samples, then five on the others.
  DistributedSampler before(60, 1, 3);
  before.next(4);
  before.next(4);
  EXPECT_EQ(before.position(), 24U);
  const Batch order = epoch_of(60, 0, 1, 60).at(0);
  Batch rest;
  std::vector<std::vector<Batch>> all;
  for (int rank = 0; rank < 5; ++rank) {
    DistributedSampler after(60, rank, 5);
    load(after, saved(before));
    after.reset();
    EXPECT_EQ(after.left(), 8U);
    all.push_back(batches(after, 8));
  }
  rest = joined(all, 0);
  rest.resize(36);
  EXPECT_EQ(rest, Batch(order.begin() + 24, order.end()));
}

TEST(Sampler, RefusesThePositionInAnotherDataset) {
  DistributedSampler before(60, 0, 3), after(61, 0, 3);
  const std::string message = test::usage_error([&] { load(after, saved(before)); });
  EXPECT_NE(message.find("60 samples, this one of 61"), std::string::npos) << message;
}

TEST(Sampler, RefusesThePositionInAnotherOrder) {
  const auto complaint = [](const DistributedSamplerOptions& before, const DistributedSamplerOptions& after) {
    DistributedSampler saves(60, 0, 3, before), loads(60, 0, 3, after);
    saves.set_epoch(2);
    saves.next(4);
    const std::string bytes = saved(saves);
    const std::string message = test::usage_error([&] { load(loads, bytes); });
    EXPECT_EQ(loads.position(), message == "nothing was thrown" ? 12U : 0U) << message;
    return message;
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(complaint({.shuffle = true}, {.shuffle = false}), "has shuffle 1, this one 0");
  expect(complaint({.shuffle = false}, {.shuffle = true}), "has shuffle 0, this one 1");
  expect(complaint({.seed = 9}, {.seed = 4}), "has seed 9, this one 4");
  expect(complaint({.seed = ~std::uint64_t{0}}, {}), "has seed 18446744073709551615, this one 0");
  expect(complaint({.drop_last = false}, {.drop_last = true}), "has drop_last 0, this one 1");
  // A seed that nothing is drawn with does not matter.
  expect(complaint({.shuffle = false, .seed = 9}, {.shuffle = false}), "nothing was thrown");
  expect(complaint({.seed = 9, .drop_last = true}, {.seed = 9, .drop_last = true}), "nothing was thrown");
}

TEST(Sampler, TakesANewSize) {
  DistributedSampler sampler(60, 0, 3);
  load(sampler, saved(sampler));
  sampler.reset(60);
  sampler.reset(31);
  EXPECT_EQ(sampler.left(), 11U);
  EXPECT_EQ(batches(sampler, 11), epoch_of(31, 0, 3, 11));
}

/// A sample is its own index.
struct Numbers : torch::data::datasets::Dataset<Numbers, std::size_t> {
  explicit Numbers(std::size_t count) : samples(count) {}
  std::size_t get(std::size_t index) override { return index; }
  torch::optional<std::size_t> size() const override { return samples; }
  std::size_t samples;
};

TEST(Sampler, IsReachedThroughTheLoader) {
  for (const std::size_t workers : {0, 2}) {
    DistributedSampler sampler(67, 1, 3);
    const auto make = [&](const DistributedSampler& with) {
      return torch::data::make_data_loader(Numbers(67), with,
                                           torch::data::DataLoaderOptions().batch_size(4).workers(workers));
    };
    auto loader = make(sampler);
    for (std::size_t epoch = 0; epoch < 3; ++epoch) {
      sampler.set_epoch(epoch);
      std::vector<Batch> all;
      for (auto& batch : *loader) all.push_back(batch);
      EXPECT_EQ(all, epoch_of(67, 1, 3, 4, epoch));
    }

    // Stopped after two batches. A loader with workers has asked for more by then.
    const auto whole = epoch_of(67, 1, 3, 4, 3);
    sampler.set_epoch(3);
    std::string kept;
    std::size_t count = 0;
    for (auto& batch : *loader) {
      if (workers > 0) sampler.trained(batch.size());
      if (++count == 2) kept = saved(sampler);
    }
    DistributedSampler resumed(67, 1, 3);
    auto other = make(resumed);
    load(resumed, kept);
    EXPECT_EQ(resumed.position(), 24U);
    std::vector<Batch> all;
    for (auto& batch : *other) {
      all.push_back(batch);
      if (workers > 0) resumed.trained(batch.size());
      if (all.size() == 1) {
        EXPECT_EQ(resumed.position(), 36U);
      }
    }
    EXPECT_EQ(all, std::vector<Batch>(whole.begin() + 2, whole.end()));
  }
}

TEST(Sampler, RefusesMoreTrainingThanItGaveSamples) {
  DistributedSampler sampler(60, 0, 3);
  sampler.next(4);
  sampler.trained(4);
  EXPECT_NE(test::usage_error([&] { sampler.trained(1); }).find("only 12 were given out"), std::string::npos);
}

}  // namespace
}  // namespace trireme
