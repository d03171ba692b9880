#include "cli/bench_contest.h"

#include "cli/bench_world.h"
#include "cli/median.h"
#include "cli/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace trireme::cli {
namespace {

constexpr int kTrialRepeats = 3;  // that tell how many repeats there is time for
constexpr double kRoundMicroseconds = 100'000;
constexpr int kMostRepeats = 500;

/// One way to do the collective at one size.
struct Way {
  Result result;
  std::function<Timing(int repeats)> run;
  int repeats = 1;  ///< a round
  std::vector<double> medians{};
};

class Arena {
 public:
  Arena(const Contest& contest, const Interrupts& interrupts, const OnLeftOut& left_out)
      : contest_(contest),
        left_out_(left_out),
        name_(to_string(contest.collective)),
        world_(contest.ranks, contest.transport, &interrupts) {
    for (const std::string& peer : contest.against) start_peer(peer, interrupts);
  }

  std::vector<Result> measure(std::uint64_t bytes, const std::function<void(double)>& progress) {
    std::vector<Way> ways = ways_at(bytes);
    const std::size_t turns = ways.size() * static_cast<std::size_t>(contest_.rounds + 1);
    std::size_t turn = 0;
    const auto step = [&] { progress(static_cast<double>(++turn) / static_cast<double>(turns)); };
    std::erase_if(ways, [&](Way& way) {
      step();
      return !try_out(way);
    });
    for (int round = 0; round < contest_.rounds; ++round) {
      for (Way& way : ways) {
        const Timing timing = way.run(way.repeats);
        way.result.min_us = round == 0 ? timing.min_us : std::min(way.result.min_us, timing.min_us);
        way.medians.push_back(timing.median_us);
        step();
      }
    }
    std::vector<Result> results;
    for (Way& way : ways) {
      way.result.median_us = median(way.medians);
      results.push_back(std::move(way.result));
    }
    return results;
  }

 private:
  // Whatever keeps one of several peers from starting is no reason not to measure the others.
  void start_peer(const std::string& name, const Interrupts& interrupts) {
    const std::string transport = contest_.transport == "tcp" ? "tcp" : "shm";
    try {
      peers_.push_back(std::make_unique<Peer>(name, contest_.ranks, transport, Peer::workers(), &interrupts));
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& error) {
      if (contest_.against.size() < 2) throw;
      left_out_({.peer = name, .why = error.what()});
    }
  }

  std::vector<Way> ways_at(std::uint64_t bytes) {
    std::vector<Way> ways;
    for (const std::string& buffers : contest_.buffers) {
      // What is chosen may have segments that naming it would not give it.
      const std::string chosen = world_.run(name_, bytes, 1, buffers, "").algorithm;
      std::vector<std::string> names = contest_.algorithms;
      if (names.empty()) names.push_back(chosen);
      for (const std::string& name : names) {
        const bool is_chosen = name == chosen;
        const std::string asked = is_chosen ? "" : name;
        ways.push_back({.result = {.bytes = bytes, .algorithm = name, .buffers = buffers, .chosen = is_chosen},
                        .run = [=, this](int repeats) { return world_.run(name_, bytes, repeats, buffers, asked); }});
      }
    }
    for (const auto& peer : peers_) {
      ways.push_back({.result = {.bytes = bytes, .peer = peer->name()},
                      .run = [=, this, &peer = *peer](int repeats) { return peer.run(name_, bytes, repeats); }});
    }
    return ways;
  }

  // A first run, which counts for nothing but the number of repeats. Whether the way can be gone at all: of many
  // algorithms or peers one may turn out not to; an only one has to.
  bool try_out(Way& way) {
    std::optional<Timing> timing;
    try {
      timing = way.run(kTrialRepeats);
    } catch (const UsageError& error) {
      const std::string& peer = way.result.peer;
      if ((peer.empty() ? contest_.algorithms : contest_.against).size() < 2) throw;
      left_out_({.peer = peer, .why = error.what()});
      // It would say the same at the next size.
      std::erase_if(peers_, [&](const auto& one) { return one->name() == peer; });
      return false;
    }
    const double fitting = kRoundMicroseconds / std::max(timing->median_us, 0.1);
    way.repeats = contest_.repeats > 0 ? std::max(1, contest_.repeats / contest_.rounds)
                                       : static_cast<int>(std::clamp<double>(fitting, kTrialRepeats, kMostRepeats));
    return true;
  }

  const Contest& contest_;
  const OnLeftOut& left_out_;
  std::string name_;
  BenchWorld world_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace

void hold(const Contest& contest, const Interrupts& interrupts, const OnSize& on_size,
          const std::function<void(double)>& progress, const OnLeftOut& left_out) {
  Arena arena(contest, interrupts, left_out);
  for (std::size_t i = 0; i < contest.bytes.size(); ++i) {
    const auto part = [&](double done) {
      progress((static_cast<double>(i) + done) / static_cast<double>(contest.bytes.size()));
    };
    on_size(arena.measure(contest.bytes[i], part));
  }
}

}  // namespace trireme::cli
