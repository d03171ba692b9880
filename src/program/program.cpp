#include "trireme/program.h"

#include "trireme/error.h"
#include "trireme/names.h"

#include <fmt/format.h>

#include <array>

namespace trireme {
namespace {

constexpr std::array<std::string_view, kCollectives> kCollectiveNames{
    "allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "barrier"};

}  // namespace

std::string_view to_string(Action action) {
  constexpr std::array<std::string_view, 3> kNames{"send", "receive", "add"};
  return kNames.at(static_cast<std::size_t>(action));
}

std::string_view to_string(Collective collective) { return kCollectiveNames.at(static_cast<std::size_t>(collective)); }

Collective parse_collective(std::string_view name) {
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
    if (kCollectiveNames[i] == name) return static_cast<Collective>(i);
  }
  const std::vector<std::string> names(kCollectiveNames.begin(), kCollectiveNames.end());
  const std::string guess = nearest(name, names);
  throw UsageError(guess.empty()
                       ? fmt::format("no collective is called '{}'; there are {}", name, fmt::join(names, ", "))
                       : fmt::format("no collective is called '{}'; did you mean '{}'?", name, guess));
}

Run share_of_rank(int rank, int ranks, int blocks) {
  const int each = blocks / ranks;
  return {rank * each, each};
}

}  // namespace trireme
