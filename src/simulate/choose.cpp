#include "trireme/choose.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

// Trying many segment counts must not take much longer than trying one.
constexpr std::uint64_t kMostStepsForSegments = 20'000'000;

// No schedule is faster than this: its rounds, or its busiest rank's bytes, through the best link there is.
Seconds least_time(const Algorithm& algorithm, const Setting& setting, const Situation& situation) {
  const Topology& topology = *situation.topology;
  if (topology.kind != "switch" && topology.kind != "two_level") return Seconds(0);
  Link link = topology.link;
  if (topology.kind == "two_level") {
    link.alpha = std::min(link.alpha, topology.inside.alpha);
    link.bandwidth = std::max(link.bandwidth, topology.inside.bandwidth);
  }
  const double sent = algorithm.sent.value(setting) * static_cast<double>(situation.bytes);
  return std::max(algorithm.rounds.value(setting) * link.alpha, Seconds(sent / link.bandwidth));
}

// Why an algorithm is not simulated here; nothing if it is.
struct Unfit {
  std::string why;
  bool can_run = false;  // it could, but a simulation would take too long
};

Unfit why_unfit(const Algorithm& algorithm, const Situation& situation) {
  const int ranks = situation.setting.ranks;
  if (!algorithm.accepts(ranks)) return {fmt::format("takes {} only", algorithm.takes)};
  if (algorithm.served && !situation.with_servers) return {"takes part when --servers gives it extra ranks"};
  try {
    check(algorithm, situation.setting);
    make_network(*situation.topology, total_ranks(algorithm, situation.setting));
  } catch (const UsageError& error) {
    return {error.what()};
  }
  const std::uint64_t steps = estimated_steps(algorithm, situation.setting);
  const bool taken_by_others = situation.collective == Collective::allreduce &&
                               std::any_of(policies().begin(), policies().end(), [&](const Policy& policy) {
                                 return policy.rule(ranks, situation.bytes) == algorithm.name;
                               });
  if (steps <= kQuickSteps || taken_by_others) return {};
  return {fmt::format("takes {} million steps to simulate", steps / 1'000'000), true};
}

Topology without_latency(Topology topology) {
  topology.link.alpha = topology.inside.alpha = Seconds(0);
  for (GraphLink& link : topology.links) link.link.alpha = Seconds(0);
  return topology;
}

Seconds time_of(const Candidate& candidate, const Topology& topology, std::uint64_t bytes, const Situation& situation) {
  const auto network = make_network(topology, total_ranks(*candidate.algorithm, candidate.setting));
  const SimulateOptions options{
      .bytes = bytes, .reduce_rate = situation.reduce_rate, .segment_bytes = situation.segment_bytes};
  return simulate(*candidate.algorithm, candidate.setting, *network, options).time;
}

// Why the second is slower, as far as rounds and bytes tell.
std::string drawback(const Candidate& best, const Candidate& next) {
  const double more_rounds = next.algorithm->rounds.value(next.setting) - best.algorithm->rounds.value(best.setting);
  const bool sends_more =
      static_cast<double>(next.cost.bytes_per_rank) > 1.01 * static_cast<double>(best.cost.bytes_per_rank);
  if (sends_more) return fmt::format("sends {} a rank", format_bytes(static_cast<double>(next.cost.bytes_per_rank)));
  if (more_rounds > 0) return fmt::format("takes {} more round{}", more_rounds, more_rounds == 1 ? "" : "s");
  return "overlaps less";
}

std::string reason_for(const Choice& choice, const Situation& situation) {
  const Candidate& best = choice.best();
  if (best.cost.steps == 0) return "One rank has nothing to exchange.";
  const double rounds = best.algorithm->rounds.value(best.setting);
  const Seconds latency = time_of(best, *situation.topology, 0, situation);
  const Seconds moving = time_of(best, without_latency(*situation.topology), situation.bytes, situation);
  std::string reason =
      fmt::format("The latency of its {} round{} alone takes {}, moving and adding {} a rank alone {}.", rounds,
                  rounds == 1 ? "" : "s", format_time(latency),
                  format_bytes(static_cast<double>(best.cost.bytes_per_rank)), format_time(moving));
  // One that takes the very same time is the same program under another name.
  const auto next = std::find_if(choice.candidates.begin(), choice.candidates.end(),
                                 [&](const Candidate& it) { return it.cost.time > best.cost.time; });
  if (next != choice.candidates.end()) {
    const double percent = 100 * (next->cost.time / best.cost.time - 1);
    reason += fmt::format(" Next is {}, {} % slower: it {}.", full_name(*next->algorithm),
                          percent < 10 ? fmt::format("{:.2g}", percent) : fmt::format("{:.0f}", percent),
                          drawback(best, *next));
  }
  for (const LeftOut& left_out : choice.left_out) {
    if (left_out.least > Seconds(0) && left_out.least < best.cost.time) {
      reason += fmt::format(" {} was not simulated and may be faster: it takes at least {}.",
                            full_name(*left_out.algorithm), format_time(left_out.least));
    }
  }
  return reason;
}

}  // namespace

Candidate best_segments(const Algorithm& algorithm, const Situation& situation) {
  const auto network = make_network(*situation.topology, total_ranks(algorithm, situation.setting));
  Setting setting = suited(algorithm, situation.setting, *network);
  const SimulateOptions options{
      .bytes = situation.bytes, .reduce_rate = situation.reduce_rate, .segment_bytes = situation.segment_bytes};
  std::vector<Candidate> tried;
  int worse = 0;  // segment counts in a row that were no better than the best
  Seconds best{0};
  for (setting.segments = 1; setting.segments <= situation.most_segments && worse < 2; setting.segments *= 2) {
    const bool first = tried.empty();
    if (!first && (!algorithm.segmented || estimated_steps(algorithm, setting) > kMostStepsForSegments)) break;
    tried.push_back({&algorithm, setting, simulate(algorithm, setting, *network, options)});
    const Seconds time = tried.back().cost.time;
    worse = first || time < best ? 0 : worse + 1;
    best = first ? time : std::min(best, time);
  }
  return *std::find_if(tried.begin(), tried.end(), [&](const Candidate& it) { return it.cost.time <= 1.01 * best; });
}

Choice choose(const Situation& situation, const std::function<void(double)>& progress) {
  struct Entrant {
    const Algorithm* algorithm;
    Seconds least;
  };
  check(algorithms(situation.collective).front(), situation.setting);
  Choice choice;
  std::vector<Entrant> entrants;
  for (const Algorithm& algorithm : algorithms(situation.collective)) {
    const Unfit unfit = why_unfit(algorithm, situation);
    if (unfit.why.empty()) {
      entrants.push_back({&algorithm, least_time(algorithm, situation.setting, situation)});
    } else {
      const Seconds least = unfit.can_run ? least_time(algorithm, situation.setting, situation) : Seconds(0);
      choice.left_out.push_back({&algorithm, unfit.why, least});
    }
  }
  if (entrants.empty()) {
    throw UsageError(fmt::format("no algorithm for {} can be simulated on {} ranks", to_string(situation.collective),
                                 situation.setting.ranks));
  }
  std::stable_sort(entrants.begin(), entrants.end(),
                   [](const Entrant& a, const Entrant& b) { return a.least < b.least; });

  // Those that can't come near the best are not worth simulating; with few ranks it costs nothing to show them too.
  constexpr double kFarBehind = 4;
  constexpr std::uint64_t kCheapSteps = 200'000;
  Seconds best{0};
  for (std::size_t i = 0; i < entrants.size(); ++i) {
    const auto& [algorithm, least] = entrants[i];
    const bool hopeless = !choice.candidates.empty() && least > kFarBehind * best;
    if (hopeless && estimated_steps(*algorithm, situation.setting) > kCheapSteps) {
      choice.left_out.push_back({algorithm, fmt::format("takes at least {}", format_time(least)), least});
    } else {
      choice.candidates.push_back(best_segments(*algorithm, situation));
      const Seconds time = choice.candidates.back().cost.time;
      best = choice.candidates.size() == 1 ? time : std::min(best, time);
    }
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(entrants.size()));
  }
  std::stable_sort(choice.candidates.begin(), choice.candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost.time < b.cost.time; });
  choice.reason = reason_for(choice, situation);
  return choice;
}

Race race(const Situation& situation, std::uint64_t least, std::uint64_t most,
          const std::function<void(double)>& progress) {
  if (least < 1 || most < least) throw UsageError("the sizes of a race must go up, from at least one byte");
  Race race{.collective = situation.collective,
            .ranks = situation.setting.ranks,
            .bytes = {},
            .entries = {},
            .winners = {},
            .left_out = {}};
  for (std::uint64_t bytes = least; bytes <= most; bytes *= 2) race.bytes.push_back(bytes);
  std::vector<const Algorithm*> runners;
  std::vector<Situation> laps;  // each runner's, with what need not be made anew for each size
  for (const Algorithm& algorithm : algorithms(situation.collective)) {
    const Unfit unfit = why_unfit(algorithm, situation);
    if (!unfit.why.empty()) {
      race.left_out.push_back({&algorithm, unfit.why});
      continue;
    }
    runners.push_back(&algorithm);
    laps.push_back(situation);
    const auto network = make_network(*situation.topology, total_ranks(algorithm, situation.setting));
    laps.back().setting = suited(algorithm, situation.setting, *network);
    race.entries.push_back({std::string(algorithm.name), {}, {}});
  }
  if (race.entries.empty())
    throw UsageError("there is nothing to race: no algorithm can be simulated on so many ranks");

  for (std::size_t i = 0; i < race.bytes.size(); ++i) {
    for (std::size_t entry = 0; entry < runners.size(); ++entry) {
      laps[entry].bytes = race.bytes[i];
      const Candidate candidate = best_segments(*runners[entry], laps[entry]);
      race.entries[entry].times.push_back(candidate.cost.time);
      race.entries[entry].segments.push_back(candidate.setting.segments);
      const double done = static_cast<double>(i) + static_cast<double>(entry + 1) / static_cast<double>(runners.size());
      if (progress) progress(done / static_cast<double>(race.bytes.size()));
    }
    const auto faster = [&](const Race::Entry& a, const Race::Entry& b) { return a.times.back() < b.times.back(); };
    const auto winner = std::min_element(race.entries.begin(), race.entries.end(), faster);
    race.winners.push_back(static_cast<int>(winner - race.entries.begin()));
  }
  return race;
}

}  // namespace trireme
