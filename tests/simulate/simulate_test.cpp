// What must hold for every simulation, whatever the program.
#include "trireme/simulate.h"

#include "trireme/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace trireme {
namespace {

using Blocks = Run;  // inside a test, Run is GoogleTest's

const Link kLink{.alpha = Seconds(20e-6), .bandwidth = 1.25e9};

template <class Visit>
void each_setting(const std::vector<int>& rank_counts, const Visit& visit) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : rank_counts) {
      if (!algorithm.accepts(ranks)) continue;
      for (const int segments : {1, 4}) {
        if (segments > 1 && !algorithm.segmented) continue;
        SCOPED_TRACE(full_name(algorithm) + " " + std::to_string(ranks) + "/" + std::to_string(segments));
        visit(algorithm, Setting{.ranks = ranks, .segments = segments});
      }
    }
  }
}

// A barrier's messages have no content. Others: bytes of a run when the first `bytes % blocks` blocks have one more:
// written again, apart from the simulator.
std::uint64_t bytes_of(Run run, const Schedule& schedule, std::uint64_t bytes) {
  if (schedule.collective == Collective::barrier) return 0;
  const int blocks = schedule.blocks();
  std::uint64_t total = 0;
  for (int block = run.first; block < run.end(); ++block) {
    total += bytes / blocks + (static_cast<std::uint64_t>(block) < bytes % blocks ? 1 : 0);
  }
  return total;
}

TEST(Simulate, CountsBytesAndSteps) {
  constexpr std::uint64_t kBytes = 100'003;
  each_setting({1, 2, 3, 5, 7, 8, 16}, [](const Algorithm& algorithm, const Setting& setting) {
    const Schedule schedule = make_schedule(algorithm, setting);
    std::uint64_t total = 0;
    std::uint64_t steps = 0;
    std::vector<std::uint64_t> sent(schedule.ranks());
    std::vector<std::uint64_t> taken(schedule.ranks());
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      for (const Step& step : schedule.programs[rank].steps) {
        const std::uint64_t bytes = bytes_of(step.run, schedule, kBytes);
        ++steps;
        if (step.action != Action::send) continue;
        total += bytes;
        sent[rank] += bytes;
        taken[step.peer] += bytes;
      }
    }
    const Simulated result = simulate(schedule, *make_switch(schedule.ranks(), kLink), {.bytes = kBytes});
    EXPECT_EQ(result.steps, steps);
    EXPECT_EQ(result.bytes_total, total);
    EXPECT_EQ(result.bytes_per_rank, *std::max_element(sent.begin(), sent.end()));
    EXPECT_EQ(result.busiest_way_in, *std::max_element(taken.begin(), taken.end()));
  });
}

TEST(Simulate, AWayCarriesOneMessageAtATime) {
  constexpr std::uint64_t kBytes = 1 << 20;
  each_setting({2, 3, 6, 8}, [](const Algorithm& algorithm, const Setting& setting) {
    const Schedule schedule = make_schedule(algorithm, setting);
    std::vector<Delivery> deliveries;
    const Simulated result = simulate(schedule, *make_switch(schedule.ranks(), kLink),
                                      {.bytes = kBytes, .reduce_rate = 1e9, .deliveries = &deliveries});
    EXPECT_EQ(deliveries.size() * 2, result.steps);
    using Interval = std::pair<Ticks, Ticks>;
    std::map<int, std::vector<Interval>> out;
    std::map<int, std::vector<Interval>> in;
    std::map<int, std::vector<Interval>> adder;
    Ticks last{0};
    for (const Delivery& delivery : deliveries) {
      const auto bytes = static_cast<double>(bytes_of(delivery.sent, schedule, kBytes));
      const Ticks takes = to_ticks(Seconds(bytes / kLink.bandwidth));
      const Ticks adds = to_ticks(Seconds(bytes / 1e9));
      EXPECT_EQ(delivery.sent.count, delivery.taken.count);
      EXPECT_GE(delivery.arrives, delivery.begins + takes + to_ticks(kLink.alpha) - Ticks(1));
      EXPECT_GE(delivery.ends, delivery.arrives);
      out[delivery.from].push_back({delivery.begins, delivery.begins + takes});
      in[delivery.to].push_back({delivery.arrives - takes, delivery.arrives});
      if (delivery.adds) adder[delivery.to].push_back({delivery.ends - adds, delivery.ends});
      last = std::max(last, delivery.ends);
    }
    EXPECT_EQ(Seconds(last), result.time);
    for (auto* ways : {&out, &in, &adder}) {
      for (auto& [rank, intervals] : *ways) {
        std::sort(intervals.begin(), intervals.end());
        for (std::size_t i = 1; i < intervals.size(); ++i) {
          EXPECT_GE(intervals[i].first + Ticks(2), intervals[i - 1].second) << "rank " << rank;
        }
      }
    }
  });
}

// The k-th message of a channel must be the k-th send of one and the k-th receive of the other, whatever the timing.
TEST(Simulate, MessagesOfAChannelMeetInOrder) {
  struct Ends {
    std::vector<Blocks> sent, taken;
  };
  for (const double alpha : {20e-6, 1e-6, 0.0}) {
    for (const std::uint64_t bytes :
         {std::uint64_t{0}, std::uint64_t{1} << 16, std::uint64_t{1} << 20, std::uint64_t{720720}}) {
      each_setting({2, 3, 4, 5, 6, 8, 12, 16}, [&](const Algorithm& algorithm, const Setting& setting) {
        const Schedule schedule = make_schedule(algorithm, setting);
        std::map<std::pair<int, int>, Ends> expected;
        for (int rank = 0; rank < schedule.ranks(); ++rank) {
          for (const Step& step : schedule.programs[rank].steps) {
            if (step.action == Action::send) expected[{rank, step.peer}].sent.push_back(step.run);
            if (step.action != Action::send) expected[{step.peer, rank}].taken.push_back(step.run);
          }
        }
        std::vector<Delivery> deliveries;
        const auto network = make_switch(schedule.ranks(), {Seconds(alpha), 1.25e9});
        simulate(schedule, *network, {.bytes = bytes, .reduce_rate = 8e9, .deliveries = &deliveries});
        std::stable_sort(deliveries.begin(), deliveries.end(),
                         [](const Delivery& a, const Delivery& b) { return a.arrives < b.arrives; });
        std::map<std::pair<int, int>, std::vector<std::pair<Blocks, Blocks>>> seen;
        for (const Delivery& it : deliveries) seen[{it.from, it.to}].push_back({it.sent, it.taken});
        for (auto& [channel, ends] : expected) {
          auto& messages = seen[channel];
          ASSERT_EQ(messages.size(), ends.sent.size());
          for (const auto& [sent, taken] : messages) {
            const auto k = std::find(ends.sent.begin(), ends.sent.end(), sent) - ends.sent.begin();
            ASSERT_LT(k, std::ssize(ends.sent));
            EXPECT_EQ(ends.taken[k], taken) << channel.first << " to " << channel.second;
            // A run may be sent twice; each is to be found once.
            ends.sent.erase(ends.sent.begin() + k);
            ends.taken.erase(ends.taken.begin() + k);
          }
        }
      });
    }
  }
}

TEST(Simulate, TimeScalesWithRatesAndGrowsWithBytes) {
  each_setting({2, 5, 8}, [](const Algorithm& algorithm, const Setting& setting) {
    const auto time = [&](std::uint64_t bytes, double alpha, double speed) {
      const auto network = make_switch(total_ranks(algorithm, setting), {Seconds(alpha), 1e9 * speed});
      return simulate(algorithm, setting, *network, {.bytes = bytes, .reduce_rate = 8e9 * speed}).time.count();
    };
    const double once = time(1 << 20, 40e-6, 1);
    EXPECT_NEAR(time(1 << 20, 20e-6, 2), once / 2, 1e-4 * once);
    EXPECT_LE(time(1 << 19, 40e-6, 1), once);
    EXPECT_LE(time(1 << 20, 10e-6, 1), once);
    EXPECT_LE(time(1 << 20, 40e-6, 1.5), once * (1 + 1e-9));
  });
}

TEST(Simulate, ALongerWindowChangesLittle) {
  each_setting({3, 8, 16, 40}, [](const Algorithm& algorithm, const Setting& setting) {
    const auto time = [&](int window) {
      const auto network = make_switch(total_ranks(algorithm, setting), kLink);
      return simulate(algorithm, setting, *network, {.bytes = 1 << 20, .window = window}).time.count();
    };
    EXPECT_NEAR(time(64) / std::max(time(32), 1e-12), setting.ranks == 1 ? 0 : 1, 0.08);
  });
}

TEST(Simulate, LooksFurtherAheadWhereAProgramNeedsIt) {
  // Rank 1 sends nothing before it has what comes last in rank 0's program.
  constexpr int kBlocks = 301;
  Schedule schedule{.algorithm = "deep"};
  schedule.programs.assign(2, Program{.blocks = kBlocks});
  schedule.programs[1].receive(0, 0);
  for (int block = 1; block < kBlocks; ++block) {
    schedule.programs[0].receive(block, 1);
    schedule.programs[1].send(0, 0);
  }
  schedule.programs[0].send(0, 1);
  const Simulated result = simulate(schedule, *make_switch(2, kLink), {.bytes = 1 << 20});
  EXPECT_EQ(result.steps, 2U * kBlocks);
  EXPECT_GT(result.time, 2 * kLink.alpha);
}

TEST(Simulate, SaysWhoIsStuck) {
  Schedule schedule{.algorithm = "stuck", .collective = Collective::allreduce};
  schedule.programs.assign(3, Program{.blocks = 1});
  schedule.programs[1].add(0, 2);
  try {
    simulate(schedule, *make_switch(3, kLink), {.bytes = 8});
    FAIL() << "a receive without a send ended";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(simulate(schedule, *make_switch(2, kLink), {.bytes = 8}), UsageError);
}

TEST(Simulate, RefusesWhatIsBeyondReason) {
  const Algorithm& algorithm = find_algorithm("fully_connected");
  const Setting setting{.ranks = 1 << 17};
  EXPECT_THROW(simulate(algorithm, setting, *make_switch(setting.ranks, kLink), {.bytes = 8}), UsageError);
}

TEST(Simulate, ManyRanksInLittleMemoryAndTheSameEveryTime) {
  const Algorithm& algorithm = find_algorithm("double_binary_tree");
  const Setting setting{.ranks = 4096, .segments = 8};
  const auto network = make_switch(setting.ranks, kLink);
  const Simulated first = simulate(algorithm, setting, *network, {.bytes = 1 << 24});
  const Simulated second = simulate(algorithm, setting, *network, {.bytes = 1 << 24});
  EXPECT_EQ(first.time, second.time);
}

}  // namespace
}  // namespace trireme
