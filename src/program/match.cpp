// Messages: the k-th send of a channel meets its k-th receive.
#include "program/order.h"

#include <fmt/format.h>

namespace trireme {

StepTable::StepTable(const Schedule& schedule) : schedule_(&schedule) {
  first_.reserve(schedule.ranks() + 1);
  first_.push_back(0);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const int count = static_cast<int>(schedule.programs[rank].steps.size());
    rank_.insert(rank_.end(), count, rank);
    first_.push_back(first_.back() + count);
  }
}

std::string describe(const StepTable& steps, int index) {
  const Step& step = steps[index];
  const std::string run = step.run.count == 1 ? fmt::format("{}", step.run.first)
                                              : fmt::format("{}..{}", step.run.first, step.run.end() - 1);
  return fmt::format("rank {}, step {} ({} {} {} {})", steps.rank(index), steps.step(index), to_string(step.action),
                     run, step.action == Action::send ? "to" : "from", step.peer);
}

Matching match(const Schedule& schedule, const StepTable& steps) {
  const int ranks = schedule.ranks();
  const auto channel = [&](int from, int to) { return static_cast<std::size_t>(from) * ranks + to; };
  Matching matching{.partner = std::vector<int>(steps.size(), -1), .finding = {}};

  // The sends of a channel as a list, first to last.
  std::vector<int> head(static_cast<std::size_t>(ranks) * ranks, -1);
  std::vector<int> next(steps.size(), -1);
  for (int index = steps.size() - 1; index >= 0; --index) {
    if (steps[index].action != Action::send) continue;
    int& first = head[channel(steps.rank(index), steps[index].peer)];
    next[index] = first;
    first = index;
  }

  const auto fail = [&](int index, const std::string& message) {
    const int block = steps[index].run.first;
    matching.finding = Finding{steps.rank(index), steps.step(index), block,
                               fmt::format("{}: block {}: {}", describe(steps, index), block, message)};
  };
  for (int index = 0; index < steps.size(); ++index) {
    const Step& step = steps[index];
    if (step.action == Action::send) continue;
    int& first = head[channel(step.peer, steps.rank(index))];
    if (first < 0) {
      fail(index, fmt::format("no message: rank {} sends fewer than rank {} takes", step.peer, steps.rank(index)));
      return matching;
    }
    if (steps[first].run.count != step.run.count) {
      fail(index, fmt::format("the message has {} blocks, not {}: it is {}", steps[first].run.count, step.run.count,
                              describe(steps, first)));
      return matching;
    }
    matching.partner[index] = first;
    matching.partner[first] = index;
    first = next[first];
  }
  for (int index = 0; index < steps.size(); ++index) {
    if (matching.partner[index] < 0) {
      fail(index, fmt::format("rank {} never takes this message", steps[index].peer));
      break;
    }
  }
  return matching;
}

}  // namespace trireme
