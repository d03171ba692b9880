#include "cli/bench_report.h"

#include "cli/cores.h"
#include "trireme/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

bool is_peer(const Result& result) { return !result.peer.empty(); }

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::allreduce: return 2 * others;
    case Collective::reduce_scatter:
    case Collective::allgather:
    case Collective::all_to_all: return others;
    default: return 1;
  }
}

std::string format_rate(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:.3g}", bytes_per_second / 1e9) : "-";
}

std::string model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name") && !line.starts_with("Model")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string describe(const Contest& contest, const Machine& machine) {
  return fmt::format("transport {}, {} {} of {}", contest.transport, machine.cores,
                     machine.cores == 1 ? "core" : "cores", machine.model);
}

}  // namespace

Machine Machine::here() { return {.cores = Cores().count(), .model = model_name()}; }

double algorithm_bandwidth(const Result& result) {
  return result.median_us > 0 ? static_cast<double>(result.bytes) / (result.median_us * 1e-6) : 0;
}

double bus_bandwidth(const Result& result, Collective collective, int ranks) {
  return algorithm_bandwidth(result) * bus_factor(collective, ranks);
}

double ratio(const Result& trireme, const Result& peer) {
  return trireme.median_us > 0 ? peer.median_us / trireme.median_us : 0;
}

BenchTable::BenchTable(const Contest& contest, const Machine& machine, const std::vector<Result>& first)
    : contest_(contest) {
  for (const Result& result : first) {
    if (is_peer(result)) peers_.push_back(result.peer);
  }
  fmt::print("{} on {} {}, {}\n", to_string(contest.collective), contest.ranks, contest.ranks == 1 ? "rank" : "ranks",
             describe(contest, machine));
  fmt::print("{:>10}  {:26} {:9} {:>11} {:>11} {:>9} {:>9}", "bytes", "algorithm", "buffers", "median us", "min us",
             "alg GB/s", "bus GB/s");
  for (const std::string& peer : peers_) fmt::print(" {:>12}", "vs " + peer);
  fmt::print("\n");
}

void BenchTable::print(const std::vector<Result>& results) const {
  for (const Result& result : results) {
    const std::string mark = result.chosen && contest_.algorithms.size() > 1 ? " *" : "";
    fmt::print("{:>10}  {:26} {:9} {:11.2f} {:11.2f} {:>9} {:>9}", format_bytes(static_cast<double>(result.bytes)),
               is_peer(result) ? fmt::format("({})", result.peer) : result.algorithm + mark, result.buffers,
               result.median_us, result.min_us, format_rate(algorithm_bandwidth(result)),
               format_rate(bus_bandwidth(result, contest_.collective, contest_.ranks)));
    if (!is_peer(result)) print_ratios(result, results);
    fmt::print("\n");
  }
  std::fflush(stdout);  // The next size may take a while.
}

void BenchTable::print_ratios(const Result& result, const std::vector<Result>& results) const {
  for (const std::string& name : peers_) {
    const auto peer = std::find_if(results.begin(), results.end(), [&](const Result& one) { return one.peer == name; });
    fmt::print(" {:>12}", peer == results.end() ? "-" : fmt::format("{:.2f}x", ratio(result, *peer)));
  }
}

void BenchTable::finish(const std::vector<Result>& results) const {
  if (!peers_.empty()) fmt::print("vs: the peer's time over Trireme's; above 1, Trireme is faster\n");
  if (contest_.algorithms.size() < 2) return;
  fmt::print("*: what selection takes\n\nfastest\n");
  for (const std::uint64_t bytes : contest_.bytes) {
    for (const std::string& buffers : contest_.buffers) print_fastest(results, bytes, buffers);
  }
}

void BenchTable::print_fastest(const std::vector<Result>& results, std::uint64_t bytes, const std::string& buffers) {
  const Result* fastest = nullptr;
  const Result* chosen = nullptr;
  for (const Result& result : results) {
    if (is_peer(result) || result.bytes != bytes || result.buffers != buffers) continue;
    if (fastest == nullptr || result.median_us < fastest->median_us) fastest = &result;
    if (result.chosen) chosen = &result;
  }
  if (fastest == nullptr) return;
  const std::string selection = chosen == nullptr || chosen == fastest
                                    ? ""
                                    : fmt::format("   selection takes {}: {:.2f}x as long", chosen->algorithm,
                                                  chosen->median_us / fastest->median_us);
  fmt::print("{:>10}  {:26} {:9} {:11.2f} us{}\n", format_bytes(static_cast<double>(bytes)),
             fastest->algorithm + (chosen == fastest ? " *" : ""), buffers, fastest->median_us, selection);
}

Json bench_json(const Contest& contest, const Machine& machine, const std::vector<Result>& results,
                const std::vector<LeftOut>& left_out) {
  Json report{{"collective", to_string(contest.collective)},
              {"ranks", contest.ranks},
              {"transport", contest.transport},
              {"machine", {{"cores", machine.cores}, {"model", machine.model}}},
              {"results", Json::array()},
              {"peers", Json::array()},
              {"peers_left_out", Json::array()}};
  for (const LeftOut& one : left_out) {
    if (!one.peer.empty()) report["peers_left_out"].push_back({{"name", one.peer}, {"why", one.why}});
  }
  for (const Result& result : results) {
    if (is_peer(result)) {
      report["peers"].push_back(
          {{"name", result.peer}, {"bytes", result.bytes}, {"median_us", result.median_us}, {"min_us", result.min_us}});
      continue;
    }
    Json ratios = Json::object();
    for (const Result& peer : results) {
      if (is_peer(peer) && peer.bytes == result.bytes) ratios[peer.peer] = ratio(result, peer);
    }
    report["results"].push_back({{"bytes", result.bytes},
                                 {"buffers", result.buffers},
                                 {"algorithm", result.algorithm},
                                 {"chosen", result.chosen},
                                 {"median_us", result.median_us},
                                 {"min_us", result.min_us},
                                 {"algorithm_bandwidth", algorithm_bandwidth(result)},
                                 {"bus_bandwidth", bus_bandwidth(result, contest.collective, contest.ranks)},
                                 {"ratio", std::move(ratios)}});
  }
  return report;
}

Race bench_race(const Contest& contest, const std::vector<Result>& results) {
  Race race{
      .collective = contest.collective, .ranks = contest.ranks, .bytes = contest.bytes, .entries = {}, .winners = {}};
  // Selection may take another algorithm at another size: then it is one line all the same.
  const bool one_line = contest.algorithms.empty();
  const auto name = [&](const Result& result) {
    if (is_peer(result)) return result.peer;
    const std::string algorithm = one_line ? "trireme" : result.algorithm;
    return contest.buffers.size() > 1 ? fmt::format("{}, {}", algorithm, result.buffers) : algorithm;
  };
  for (const Result& result : results) {
    auto entry = std::find_if(race.entries.begin(), race.entries.end(),
                              [&](const Race::Entry& one) { return one.algorithm == name(result); });
    if (entry == race.entries.end())
      entry = race.entries.insert(entry, {.algorithm = name(result), .times = {}, .segments = {}});
    entry->times.emplace_back(result.median_us * 1e-6);
    entry->segments.push_back(1);
  }
  std::erase_if(race.entries, [&](const Race::Entry& entry) { return entry.times.size() != race.bytes.size(); });
  for (std::size_t size = 0; size < race.bytes.size() && !race.entries.empty(); ++size) {
    const auto winner =
        std::min_element(race.entries.begin(), race.entries.end(),
                         [&](const Race::Entry& a, const Race::Entry& b) { return a.times[size] < b.times[size]; });
    race.winners.push_back(static_cast<int>(winner - race.entries.begin()));
  }
  return race;
}

std::string bench_caption(const Contest& contest, const Machine& machine) {
  return fmt::format("Measured: {}; medians of {} interleaved rounds.", describe(contest, machine), contest.rounds);
}

}  // namespace trireme::cli
