// Networks: what a message costs on each, and which topology files are refused.
#include "trireme/network.h"

#include "trireme/choose.h"
#include "trireme/error.h"
#include "trireme/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme {
namespace {

constexpr std::uint64_t kMega = 1'000'000;

// One message of `bytes` from rank to rank for each pair, all at once.
Seconds time_of(const Network& network, const std::vector<std::pair<int, int>>& pairs, std::uint64_t bytes) {
  Schedule schedule{.algorithm = "messages"};
  schedule.programs.assign(network.ranks(), Program{.blocks = static_cast<int>(pairs.size())});
  for (int i = 0; i < static_cast<int>(pairs.size()); ++i) {
    schedule.programs[pairs[i].first].send(i, pairs[i].second);
    schedule.programs[pairs[i].second].receive(i, pairs[i].first);
  }
  return simulate(schedule, network, {.bytes = bytes * pairs.size()}).time;
}

TEST(Network, TwoLevelsShareTheWayOutOfAHost) {
  const auto network = make_two_level(8, 4, {Seconds(1e-6), 10e9}, {Seconds(20e-6), 1e9});
  const auto time = [&](const std::vector<std::pair<int, int>>& pairs) {
    return time_of(*network, pairs, kMega).count();
  };
  EXPECT_NEAR(time({{0, 1}}), 1e-6 + 1e-4, 1e-9);
  EXPECT_NEAR(time({{0, 4}}), 20e-6 + 1e-3, 1e-9);
  EXPECT_NEAR(time({{0, 4}, {1, 5}}), 20e-6 + 2e-3, 2e-6) << "both leave by the same way";
  EXPECT_NEAR(time({{0, 1}, {2, 3}}), 1e-6 + 1e-4, 1e-9) << "inside, nothing is shared";
  EXPECT_NEAR(time({{0, 4}, {5, 1}}), 20e-6 + 1e-3, 1e-9) << "out and in are two ways";
}

TEST(Network, ATorusGoesTheShortWayRound) {
  const auto network = make_torus(4, 5, {Seconds(1e-6), 1e9});
  const auto hops = [&](int from, int to) { return std::lround(time_of(*network, {{from, to}}, 0).count() / 1e-6); };
  for (int from = 0; from < 20; ++from) {
    for (int to = 0; to < 20; ++to) {
      if (from == to) continue;
      const int across = std::abs(from % 5 - to % 5);
      const int down = std::abs(from / 5 - to / 5);
      EXPECT_EQ(hops(from, to), std::min(across, 5 - across) + std::min(down, 4 - down)) << from << " to " << to;
    }
  }
  // 0 to 2 and 1 to 2 share the way from 1 to 2; 0 to 1 and 1 to 0 share none.
  EXPECT_NEAR(time_of(*network, {{0, 2}, {1, 2}}, kMega).count(), 2e-3, 3e-6);
  EXPECT_NEAR(time_of(*network, {{0, 1}, {1, 0}}, kMega).count(), 1e-3, 2e-6);
}

// A message there, back and there again: the first finds links that never rested, the others make up for the rest.
TEST(Network, ALinkMakesUpForItsRestUpToItsBurst) {
  Schedule schedule{.algorithm = "messages"};
  schedule.programs.assign(2, Program{.blocks = 1});
  schedule.programs[0].send(0, 1);
  schedule.programs[0].receive(0, 1);
  schedule.programs[0].send(0, 1);
  schedule.programs[1].receive(0, 0);
  schedule.programs[1].send(0, 0);
  schedule.programs[1].receive(0, 0);
  const auto time = [&](double burst) {
    const auto network = make_switch(2, {.alpha = Seconds(1e-5), .bandwidth = 1e9, .burst = burst});
    return simulate(schedule, *network, {.bytes = kMega}).time.count();
  };
  const double plain = 3 * (1e-5 + 1e-3);
  EXPECT_NEAR(time(0), plain, 1e-9);
  EXPECT_NEAR(time(3e5), plain - 2 * 3e-4, 1e-9);
  EXPECT_NEAR(time(1e12), 1e-5 + 2e-3, 1e-9) << "never more than its bandwidth in all the time";
}

TEST(Network, AGraphSharesLinksAndTakesTheFastestPath) {
  // 0 and 1 behind switch 4, 2 and 3 behind switch 5, a thin link between; and a direct, very slow one from 0 to 2.
  const Link fast{Seconds(1e-6), 10e9};
  const Link thin{Seconds(5e-6), 1e9};
  const Link slow{Seconds(0), 1e6};
  const auto network =
      make_graph(4, 2, {{0, 4, fast}, {1, 4, fast}, {2, 5, fast}, {3, 5, fast}, {4, 5, thin}, {0, 2, slow}});
  EXPECT_NEAR(time_of(*network, {{0, 1}}, kMega).count(), 2e-6 + 1e-4, 1e-9);
  EXPECT_NEAR(time_of(*network, {{0, 2}}, kMega).count(), 7e-6 + 1e-3, 1e-9);
  EXPECT_NEAR(time_of(*network, {{0, 2}, {1, 3}}, kMega).count(), 7e-6 + 2e-3, 2e-6);
}

TEST(Network, AStarOfLinksIsASwitch) {
  for (const Algorithm& algorithm : algorithms(Collective::allreduce)) {
    for (const int ranks : {2, 3, 8}) {
      if (!algorithm.accepts(ranks)) continue;
      const Setting setting{.ranks = ranks, .segments = algorithm.segmented ? 3 : 1};
      const int total = total_ranks(algorithm, setting);
      std::vector<GraphLink> links;
      links.reserve(total);
      for (int rank = 0; rank < total; ++rank) links.push_back({rank, total, {Seconds(10e-6), 1.25e9}});
      const auto star = make_graph(total, 1, links);
      const auto single = make_switch(total, {Seconds(20e-6), 1.25e9});
      const SimulateOptions options{.bytes = 1 << 20};
      const double ratio =
          simulate(algorithm, setting, *star, options).time / simulate(algorithm, setting, *single, options).time;
      EXPECT_NEAR(ratio, 1, 0.02) << algorithm.name << " " << ranks;
    }
  }
}

TEST(Network, AlgorithmsMadeForHostsBeatTheOthersOnThem) {
  const Topology topology = parse_topology(
      R"({"kind": "two_level", "ranks_per_host": 8, "inside": {"alpha": "1us", "bandwidth": "200GB"},
          "between": {"alpha": "20us", "bandwidth": "1Gbit"}})",
      "test", {});
  const auto time = [&](const std::string& name) {
    const Situation situation{.topology = &topology, .setting = {.ranks = 32}, .bytes = 64 << 20};
    return best_segments(find_algorithm(name), situation).cost.time;
  };
  // These send at most twice the buffer out of a host; the butterfly sends seven times as much.
  for (const std::string name : {"hierarchical_ring", "torus", "halving_doubling", "ring"}) {
    EXPECT_LT(3 * time(name), time("butterfly")) << name;
  }
  const Situation situation{.topology = &topology, .setting = {.ranks = 32}, .bytes = 1 << 16};
  EXPECT_EQ(suited(find_algorithm("torus"), situation.setting, *make_network(topology, 32)).rows, 4);
}

TEST(Network, BlinkUsesLinksInProportion) {
  // Four ranks in a ring of fast links, and one slow chord: a plain ring can't use more than the ring.
  const Topology topology = parse_topology(
      R"({"kind": "graph", "ranks": 4, "links": [
          {"between": [0, 1], "bandwidth": "8GB"}, {"between": [1, 2], "bandwidth": "1GB"},
          {"between": [2, 3], "bandwidth": "8GB"}, {"between": [3, 0], "bandwidth": "8GB"}]})",
      "test", {Seconds(1e-6), 1e9});
  const auto time = [&](const std::string& name) {
    const Algorithm& algorithm = find_algorithm(name);
    const Situation situation{.topology = &topology, .setting = {.ranks = 4}, .bytes = 64 << 20, .reduce_rate = 1e12};
    return best_segments(algorithm, situation).cost.time;
  };
  // The tree of fast links carries the buffer once each way; the slow link is worth an eighth at best.
  const double fast_links = (64 << 20) / 8e9;
  EXPECT_NEAR(time("blink").count() / fast_links, 1, 0.05);
  EXPECT_LT(time("blink"), 0.75 * time("ring"));
}

TEST(Topology, RefusesWhatIsWrong) {
  const auto refuses = [](const std::string& json, const std::string& word) {
    try {
      parse_topology(json, "file.json", {});
      ADD_FAILURE() << "accepted " << json;
    } catch (const UsageError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(word), std::string::npos) << message;
      EXPECT_EQ(message.find("file.json"), 0U) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
  };
  refuses("", "JSON");
  refuses("{", "line 1, column 2");
  refuses("[]", "object");
  refuses("{}", "kind");
  refuses(R"({"kind": 3})", "kind");
  refuses(R"({"kind": "swich"})", "did you mean 'switch'?");
  refuses(R"({"kind": "switch", "bandwith": "1GB"})", "did you mean 'bandwidth'?");
  refuses(R"({"kind": "switch", "bandwidth": "-1GB"})", "-1GB");
  refuses(R"({"kind": "switch", "bandwidth": -1})", "-1");
  refuses(R"({"kind": "switch", "alpha": -1})", "negative");
  refuses(R"({"kind": "switch", "burst": -1})", "burst");
  refuses(R"({"kind": "switch", "burst": "many"})", "many");
  refuses(R"({"kind": "torus", "rows": 0, "columns": 2})", "rows");
  refuses(R"({"kind": "torus", "columns": 2})", "rows");
  refuses(R"({"kind": "two_level", "ranks_per_host": 2})", "inside");
  refuses(R"({"kind": "two_level", "ranks_per_host": 2, "inside": 3, "between": {}})", "inside");
  refuses(R"({"kind": "graph", "ranks": 2, "links": [{"between": [0, 1], "bandwidth": "-5Gbit"}]})", "link 0");
  refuses(R"({"kind": "graph", "ranks": 2, "links": [{"between": [0, 1], "latency": -5}]})", "negative");
  refuses(R"({"kind": "graph", "ranks": 2, "links": [{"between": [0, 2]}]})", "0 and 2");
  refuses(R"({"kind": "graph", "ranks": 2, "links": [{"between": [1, 1]}]})", "1 and 1");
  refuses(R"({"kind": "graph", "ranks": 2, "links": [{"between": [0]}]})", "between");
  refuses(R"({"kind": "two_level", "ranks_per_host": 2, "inside": {"bandwith": "1GB"}, "between": {}})",
          "did you mean 'bandwidth'?");
  refuses(R"({"kind": "graph", "ranks": 2, "links": [{"between": [4294967296, 1]}]})", "between");
  refuses(R"({"kind": "graph", "ranks": 2, "links": [{"between": [0, 1], "alpha": 1, "latency": 1}]})", "the same");
  refuses(R"({"kind": "graph", "ranks": 2, "links": []})", "not connected");
  refuses(R"({"kind": "graph", "ranks": 3, "links": [{"between": [0, 1]}]})", "not connected");
  refuses(R"({"kind": "graph", "ranks": 100000, "links": []})", "4096");
}

TEST(Topology, ReadsLinks) {
  const Topology topology = parse_topology(
      R"({"kind": "two_level", "ranks_per_host": 2, "inside": {"alpha": "1us"}, "between": {"bandwidth": "1GB/s", "burst": "64KiB"}})",
      "t", {.alpha = Seconds(3e-6), .bandwidth = 2e9, .burst = 7});
  EXPECT_EQ(topology.inside.alpha, Seconds(1e-6));
  EXPECT_EQ(topology.inside.bandwidth, 2e9);
  EXPECT_EQ(topology.inside.burst, 7);
  EXPECT_EQ(topology.link.alpha, Seconds(3e-6));
  EXPECT_EQ(topology.link.bandwidth, 1e9);
  EXPECT_EQ(topology.link.burst, 65536);
}

TEST(Topology, MustHaveRanksEnough) {
  const Topology torus = parse_topology(R"({"kind": "torus", "rows": 2, "columns": 3})", "t", {});
  EXPECT_EQ(make_network(torus, 6)->ranks(), 6);
  EXPECT_THROW(make_network(torus, 7), UsageError);
  const Topology vast = parse_topology(R"({"kind": "torus", "rows": 1048576, "columns": 1024})", "t", {});
  EXPECT_THROW(make_network(vast, 4), UsageError);
}

}  // namespace
}  // namespace trireme
