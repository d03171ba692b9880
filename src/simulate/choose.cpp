#include "trireme/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/error.h"

namespace trireme {
namespace {

// What one simulation may cost when many are run; about half a second and, for more segments, a few.
constexpr std::uint64_t kMostSteps = 50'000'000;
constexpr std::uint64_t kMostStepsForSegments = 4'000'000;
constexpr int kMostSegments = 128;

std::uint64_t steps_of(const Algorithm& algorithm, const Setting& setting) {
  const int ranks = total_ranks(algorithm, setting);
  return static_cast<std::uint64_t>(algorithm.program(ranks / 2, setting).steps.size()) * ranks;
}

// No schedule is faster than this: its rounds, and its busiest rank's bytes, through the best link there is.
Seconds least_time(const Algorithm& algorithm, const Setting& setting, const Situation& situation) {
  const Topology& topology = *situation.topology;
  if (topology.kind != "switch" && topology.kind != "two_level") return Seconds(0);
  Link link = topology.link;
  if (topology.kind == "two_level") {
    link.alpha = std::min(link.alpha, topology.inside.alpha);
    link.bandwidth = std::max(link.bandwidth, topology.inside.bandwidth);
  }
  const double sent = algorithm.sent.value(setting) * static_cast<double>(situation.bytes);
  return algorithm.rounds.value(setting) * link.alpha + Seconds(sent / link.bandwidth);
}

// The setting, if the algorithm can run here at all; otherwise why not.
std::string unfit(const Algorithm& algorithm, const Situation& situation) {
  const int ranks = situation.setting.ranks;
  if (!algorithm.accepts(ranks)) return fmt::format("takes {} only", algorithm.takes);
  if (algorithm.served && !situation.with_servers) return "needs extra ranks as servers";
  try {
    check(algorithm, situation.setting);
    make_network(*situation.topology, total_ranks(algorithm, situation.setting));
  } catch (const UsageError& error) {
    return error.what();
  }
  const std::uint64_t steps = steps_of(algorithm, situation.setting);
  if (steps > kMostSteps) return fmt::format("takes {} million steps to simulate", steps / 1'000'000);
  return {};
}

std::string reason_for(const Choice& choice, const Situation& situation) {
  const Candidate& best = choice.best();
  if (best.cost.steps == 0) return "One rank has nothing to exchange.";
  const auto network = make_network(*situation.topology, total_ranks(*best.algorithm, best.setting));
  const Simulated empty = simulate(*best.algorithm, best.setting, *network, {.reduce_rate = situation.reduce_rate});
  const double latency = best.cost.time.count() > 0 ? empty.time / best.cost.time : 1;
  std::string reason =
      fmt::format("{} spends {:.0f} % of its time on the latency of {} rounds, the rest on {} a rank",
                  full_name(*best.algorithm), 100 * latency, best.algorithm->rounds.value(best.setting),
                  format_bytes(static_cast<double>(best.cost.bytes_per_rank)));
  if (choice.candidates.size() < 2) return reason + "; nothing else was simulated.";
  const Candidate& next = choice.candidates[1];
  const double slower = 100 * (next.cost.time / best.cost.time - 1);
  reason += fmt::format("; next is {}, {:.3g} % slower: it ", full_name(*next.algorithm), slower);
  const double rounds = next.algorithm->rounds.value(next.setting) - best.algorithm->rounds.value(best.setting);
  const bool sends_more = next.cost.bytes_per_rank > best.cost.bytes_per_rank;
  if (rounds > 0) {
    reason += fmt::format("takes {} more rounds", rounds);
  } else if (sends_more) {
    reason += fmt::format("sends {} a rank", format_bytes(static_cast<double>(next.cost.bytes_per_rank)));
  } else {
    reason += "overlaps less";
  }
  return reason + ".";
}

}  // namespace

Candidate best_segments(const Algorithm& algorithm, const Situation& situation) {
  const auto network = make_network(*situation.topology, total_ranks(algorithm, situation.setting));
  Setting setting = suited(algorithm, situation.setting, *network);
  const SimulateOptions options{.bytes = situation.bytes, .reduce_rate = situation.reduce_rate};
  std::vector<Candidate> tried;
  int worse = 0;  // segment counts in a row that were no better than the best
  Seconds best{0};
  for (setting.segments = 1; setting.segments <= kMostSegments && worse < 2; setting.segments *= 2) {
    const bool first = tried.empty();
    if (!first && (!algorithm.segmented || steps_of(algorithm, setting) > kMostStepsForSegments)) break;
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
  Choice choice;
  std::vector<Entrant> entrants;
  for (const Algorithm& algorithm : algorithms(situation.collective)) {
    const std::string why = unfit(algorithm, situation);
    if (why.empty()) {
      entrants.push_back({&algorithm, least_time(algorithm, situation.setting, situation)});
    } else {
      choice.left_out.push_back({&algorithm, why});
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
    if (hopeless && steps_of(*algorithm, situation.setting) > kCheapSteps) {
      choice.left_out.push_back({algorithm, fmt::format("takes at least {}", format_time(least))});
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
  Race race{
      .collective = situation.collective, .ranks = situation.setting.ranks, .bytes = {}, .entries = {}, .winners = {}};
  for (std::uint64_t bytes = least; bytes <= most; bytes *= 2) race.bytes.push_back(bytes);
  std::vector<const Algorithm*> runners;
  for (const Algorithm& algorithm : algorithms(situation.collective)) {
    if (unfit(algorithm, situation).empty()) runners.push_back(&algorithm);
  }
  for (const Algorithm* runner : runners) race.entries.push_back({std::string(runner->name), {}, {}});
  if (race.entries.empty())
    throw UsageError("there is nothing to race: no algorithm can be simulated on so many ranks");

  Situation lap = situation;
  for (std::size_t i = 0; i < race.bytes.size(); ++i) {
    lap.bytes = race.bytes[i];
    for (std::size_t entry = 0; entry < runners.size(); ++entry) {
      const Candidate candidate = best_segments(*runners[entry], lap);
      race.entries[entry].times.push_back(candidate.cost.time);
      race.entries[entry].segments.push_back(candidate.setting.segments);
      const double laps = static_cast<double>(i) + static_cast<double>(entry + 1) / static_cast<double>(runners.size());
      if (progress) progress(laps / static_cast<double>(race.bytes.size()));
    }
    const auto faster = [&](const Race::Entry& a, const Race::Entry& b) { return a.times.back() < b.times.back(); };
    const auto winner = std::min_element(race.entries.begin(), race.entries.end(), faster);
    race.winners.push_back(static_cast<int>(winner - race.entries.begin()));
  }
  return race;
}

}  // namespace trireme
