#include "simulate/tape.h"

#include "simulate/event_queue.h"
#include "trireme/algorithms.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme {
namespace {

std::vector<Step> unfold(Tape tape) {
  std::vector<Step> steps;
  Step step{Action::send, 0, 0};
  while (tape.next(step)) steps.push_back(step);
  return steps;
}

TEST(Tape, GivesEveryProgramBack) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : {1, 2, 3, 5, 8, 17, 32}) {
      if (!algorithm.accepts(ranks)) continue;
      const Schedule schedule = make_schedule(algorithm, {.ranks = ranks, .segments = algorithm.segmented ? 5 : 1});
      for (const Program& program : schedule.programs) ASSERT_EQ(unfold(Tape(program.steps)), program.steps);
    }
  }
}

TEST(Tape, GivesRandomStepsBack) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<Step> steps;
    const int length = static_cast<int>(random() % 40);
    for (int i = 0; i < length; ++i) {
      steps.push_back(
          {static_cast<Action>(random() % 3), static_cast<int>(random() % 2), {static_cast<int>(random() % 3)}});
    }
    // Repeat a stretch, so that there is something to fold.
    if (length > 4) {
      const std::vector<Step> stretch(steps.begin() + 1, steps.begin() + 4);
      for (int i = 0; i < 5; ++i) steps.insert(steps.end(), stretch.begin(), stretch.end());
    }
    ASSERT_EQ(unfold(Tape(steps)), steps);
  }
}

TEST(Tape, FoldsWhatRepeats) {
  const Setting setting{.ranks = 1000, .segments = 64};
  for (const std::string name : {"ring", "segmented_ring", "chain", "double_binary_tree"}) {
    const Program program = find_algorithm(name).program(500, setting);
    EXPECT_LT(Tape(program.steps).size() * 5, program.steps.size()) << name;
  }
}

TEST(EventQueue, GivesEventsByTimeThenByTurn) {
  std::mt19937_64 random(11);
  EventQueue queue;
  std::vector<EventQueue::Event> expected;
  Ticks now{0};
  std::int32_t number = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto count = random() % 4;
    for (std::uint64_t i = 0; i < count; ++i) {
      const Ticks time = now + Ticks(static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 30))));
      queue.push(time, number);
      expected.push_back({time, number++});
    }
    if (queue.empty()) continue;
    const auto next = std::min_element(expected.begin(), expected.end(), [](const auto& a, const auto& b) {
      return a.time != b.time ? a.time < b.time : a.what < b.what;
    });
    const EventQueue::Event event = queue.pop();
    ASSERT_EQ(event.time, next->time);
    ASSERT_EQ(event.what, next->what);
    now = event.time;
    expected.erase(next);
  }
}

}  // namespace
}  // namespace trireme
