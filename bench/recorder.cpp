// What the flight recorder costs: by how much allreduces take longer with it than without, in turn on the same ranks
// (recorder_cost.cpp). In shared memory, on two ranks with windows: the fastest there are. For some ten seconds each,
// since a machine is slow or quick for seconds.
#include "command.h"
#include "figures.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace trireme {
namespace {

double percent_of_allreduce(std::size_t bytes, int pairs) {
  const std::string command = fmt::format("'{}' run -n 2 --no-prefix '{}/recorder_cost' {} {}", TRIREME_PROGRAM,
                                          TRIREME_BENCH_FOLDER, bytes, pairs);
  const auto report = nlohmann::json::parse(output_of(command), nullptr, false);
  if (!report.is_object()) throw Error(fmt::format("{} gave no report", command));
  return 100 * report["more_ns"].get<double>() / report["without_ns"].get<double>();
}

}  // namespace

std::vector<Figure> recorder_figures() {
  return {
      {"flight_recorder_share_of_allreduce_1KiB_percent", [] { return percent_of_allreduce(1 << 10, 20000); }},
      {"flight_recorder_share_of_allreduce_64KiB_percent", [] { return percent_of_allreduce(64 << 10, 8000); }},
      {"flight_recorder_share_of_allreduce_1MiB_percent", [] { return percent_of_allreduce(1 << 20, 1000); }},
  };
}

}  // namespace trireme
