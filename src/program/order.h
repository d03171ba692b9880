// In which order the steps of a schedule can happen.
//
// Every step has a beginning and an end:
//   - a send begins when earlier writes of its blocks have ended; it ends when its receive has begun: a send waits for
//     its receive;
//   - a receive or add begins (its message may come in, be it to the side) when the earlier steps on its blocks have
//     begun; it ends when the message's send has begun and the earlier steps on its blocks have ended;
//   - on one channel, sends begin in order, and receives begin and end in order.
// A schedule is free of deadlock exactly when these demands have no cycle, whatever the timing.
#pragma once

#include "trireme/program.h"
#include "trireme/verify.h"

#include <optional>
#include <vector>

namespace trireme {

/// The steps of all ranks under one number each, in the order of ranks and programs.
class StepTable {
 public:
  explicit StepTable(const Schedule& schedule);

  int size() const { return first_.back(); }
  int first(int rank) const { return first_[rank]; }
  int rank(int index) const { return rank_[index]; }
  int step(int index) const { return index - first_[rank_[index]]; }
  const Step& operator[](int index) const { return schedule_->programs[rank_[index]].steps[step(index)]; }

 private:
  const Schedule* schedule_;
  std::vector<int> first_;  // of each rank, and one past the last
  std::vector<int> rank_;
};

/// "rank 2, step 5 (add 3 from 1)"
std::string describe(const StepTable& steps, int index);

/// The step at the other end of each step's message, by index; or the step that has none, or has another size.
struct Matching {
  std::vector<int> partner;
  std::optional<Finding> finding;
};
Matching match(const Schedule& schedule, const StepTable& steps);

/// An order that the steps' beginnings of sends and ends of receives can take, or the cycle that forbids any.
struct Order {
  std::vector<int> steps;  ///< sends where they begin, receives and adds where they end
  int rounds = 0;          ///< the longest chain of messages when no send waits
  std::optional<Finding> finding;
};
Order order(const Schedule& schedule, const StepTable& steps, const std::vector<int>& partner);

}  // namespace trireme
