// What the flight recorder costs: the time to record an operation, and its share of the time that operations take. The
// difference between runs with and without it would be lost in their noise.
#include "command.h"
#include "communicator/board.h"
#include "figures.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

namespace trireme {
namespace {

double nanoseconds_to_record() {
  constexpr int kTimes = 100'000;
  constexpr int kRuns = 9;
  Board board(1);
  const std::uint64_t call[2] = {1, 2};
  std::vector<double> runs;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) board.end(0, board.begin(0, 1, static_cast<std::uint32_t>(i), call));
    runs.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kTimes);
  }
  return median(runs);
}

/// Of an allreduce in shared memory, two ranks and windows: the fastest there is.
double percent_of_allreduce(const std::string& bytes) {
  const std::string command = fmt::format(
      "'{}' bench allreduce -n 2 --transport shm --bytes {} --buffers window --json", TRIREME_PROGRAM, bytes);
  const auto report = nlohmann::json::parse(output_of(command), nullptr, false);
  if (!report.is_object()) throw Error(fmt::format("{} gave no report", command));
  const double microseconds = report["results"][0]["median_us"];
  return 100 * nanoseconds_to_record() / (1e3 * microseconds);
}

}  // namespace

std::vector<Figure> recorder_figures() {
  std::vector<Figure> figures = {{"flight_recorder_ns", nanoseconds_to_record}};
  for (const char* bytes : {"1KiB", "64KiB", "1MiB"}) {
    figures.push_back({fmt::format("flight_recorder_share_of_allreduce_{}_percent", bytes),
                       [bytes] { return percent_of_allreduce(bytes); }});
  }
  return figures;
}

}  // namespace trireme
