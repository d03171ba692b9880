// Mutants: schedules with a mistake in them, of the kinds that people make.
#pragma once

#include "support/random.h"
#include "trireme/program.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::test {

class Mutator {
 public:
  Mutator(const Schedule& original, std::uint64_t seed) : original_(original), random_(seed) {}

  /// Another schedule than the original one, and what was done to it.
  std::pair<Schedule, std::string> mutant() {
    Schedule schedule = original_;
    std::string done;
    const int mistakes = random_.chance(4) ? random_.between(2, 3) : 1;
    for (int i = 0; i < mistakes || schedule == original_; ++i) {
      const auto& [what, mistake] = kMistakes[random_.below(std::size(kMistakes))];
      const Schedule before = schedule;
      (this->*mistake)(schedule);
      if (schedule == before) continue;
      done += (done.empty() ? "" : ", ") + std::string(what);
    }
    return {std::move(schedule), done};
  }

  /// Whether there is anything to get wrong.
  static bool possible(const Schedule& schedule) {
    return std::any_of(schedule.programs.begin(), schedule.programs.end(),
                       [](const Program& program) { return !program.steps.empty(); });
  }

 private:
  using Steps = std::vector<Step>;

  struct Place {
    int rank;
    int step;
  };

  Place any_place(const Schedule& schedule) {
    while (true) {
      const int rank = random_.below(schedule.ranks());
      const int steps = static_cast<int>(schedule.programs[rank].steps.size());
      if (steps > 0) return {rank, random_.below(steps)};
      if (!possible(schedule)) return {-1, -1};
    }
  }

  // Calls change(steps, step) for some step.
  template <typename Change>
  void anywhere(Schedule& schedule, Change&& change) {
    const Place place = any_place(schedule);
    if (place.rank >= 0) change(schedule.programs[place.rank].steps, place.step);
  }

  // Calls change(steps, step) for both ends of some message; for one end if it has lost the other.
  template <typename Change>
  void both_ends(Schedule& schedule, Change&& change) {
    const Place place = any_place(schedule);
    if (place.rank < 0) return;
    Steps& steps = schedule.programs[place.rank].steps;
    const Step step = steps[place.step];
    const bool sends = step.action == Action::send;
    const auto belongs = [](const Step& other, bool send, int peer) {
      return (other.action == Action::send) == send && other.peer == peer;
    };
    const auto before =
        std::count_if(steps.begin(), steps.begin() + place.step, [&](auto& s) { return belongs(s, sends, step.peer); });
    Steps& others = schedule.programs[step.peer].steps;
    auto left = before;
    const auto partner = std::find_if(others.begin(), others.end(),
                                      [&](auto& s) { return belongs(s, !sends, place.rank) && left-- == 0; });
    if (partner != others.end()) change(others, static_cast<int>(partner - others.begin()));
    change(steps, place.step);
  }

  void drop(Schedule& schedule) {
    anywhere(schedule, [](Steps& steps, int i) { steps.erase(steps.begin() + i); });
  }

  void drop_message(Schedule& schedule) {
    both_ends(schedule, [](Steps& steps, int i) { steps.erase(steps.begin() + i); });
  }

  static void repeat(Steps& steps, int i) {
    const Step copy = steps[i];
    steps.insert(steps.begin() + i, copy);
  }

  void repeat_step(Schedule& schedule) { anywhere(schedule, repeat); }
  void repeat_message(Schedule& schedule) { both_ends(schedule, repeat); }

  void swap_neighbours(Schedule& schedule) {
    anywhere(schedule, [](Steps& steps, int i) {
      if (i + 1 < static_cast<int>(steps.size())) std::swap(steps[i], steps[i + 1]);
    });
  }

  void swap_blocks(Schedule& schedule) {
    anywhere(schedule, [&](Steps& steps, int i) { std::swap(steps[i].run, random_step(steps).run); });
  }

  void swap_peers(Schedule& schedule) {
    anywhere(schedule, [&](Steps& steps, int i) { std::swap(steps[i].peer, random_step(steps).peer); });
  }

  Step& random_step(Steps& steps) { return steps[random_.below(static_cast<int>(steps.size()))]; }

  void move(Schedule& schedule) {
    anywhere(schedule, [&](Steps& steps, int i) {
      const Step step = steps[i];
      steps.erase(steps.begin() + i);
      steps.insert(steps.begin() + random_.below(static_cast<int>(steps.size()) + 1), step);
    });
  }

  void other_peer(Schedule& schedule) {
    const Place place = any_place(schedule);
    const int peer = random_.below(schedule.ranks());
    if (place.rank >= 0 && peer != place.rank) schedule.programs[place.rank].steps[place.step].peer = peer;
  }

  void other_block(Schedule& schedule) {
    anywhere(schedule, [&](Steps& steps, int i) {
      Run& run = steps[i].run;
      run.first = random_.below(schedule.blocks() - run.count + 1);
    });
  }

  // The same block at both ends: the message arrives where it is expected, but is another one.
  void message_of_other_block(Schedule& schedule) {
    const int wish = random_.below(schedule.blocks());
    both_ends(schedule, [&](Steps& steps, int i) {
      Run& run = steps[i].run;
      run.first = std::min(wish, schedule.blocks() - run.count);
    });
  }

  // The message has a block more or less, at both ends.
  void message_of_other_size(Schedule& schedule) {
    const int by = random_.chance(2) ? 1 : -1;
    both_ends(schedule, [&](Steps& steps, int i) {
      Run& run = steps[i].run;
      if (run.count + by >= 1 && run.end() + by <= schedule.blocks()) run.count += by;
    });
  }

  void other_action(Schedule& schedule) {
    anywhere(schedule, [](Steps& steps, int i) {
      if (steps[i].action == Action::add) {
        steps[i].action = Action::receive;
      } else if (steps[i].action == Action::receive) {
        steps[i].action = Action::add;
      }
    });
  }

  struct Mistake {
    std::string_view what;
    void (Mutator::*make)(Schedule&);
  };

  static constexpr Mistake kMistakes[] = {
      {"a step dropped", &Mutator::drop},
      {"a message dropped", &Mutator::drop_message},
      {"a step doubled", &Mutator::repeat_step},
      {"a message doubled", &Mutator::repeat_message},
      {"neighbours swapped", &Mutator::swap_neighbours},
      {"blocks swapped", &Mutator::swap_blocks},
      {"peers swapped", &Mutator::swap_peers},
      {"a step moved", &Mutator::move},
      {"another peer", &Mutator::other_peer},
      {"another block", &Mutator::other_block},
      {"a message of another block", &Mutator::message_of_other_block},
      {"a message of another size", &Mutator::message_of_other_size},
      {"another action", &Mutator::other_action},
      {"another action", &Mutator::other_action},
  };

  const Schedule& original_;
  Random random_;
};

}  // namespace trireme::test
