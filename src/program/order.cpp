#include "program/order.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

// Event 2i is the beginning of step i, 2i + 1 its end.
constexpr int begin_of(int index) { return 2 * index; }
constexpr int end_of(int index) { return 2 * index + 1; }
constexpr int step_of(int event) { return event / 2; }

struct Demand {
  int before;
  int after;
};

// Demands of steps on the same blocks, and on the same channel, of one rank after another.
class Collector {
 public:
  Collector(const Schedule& schedule, const StepTable& steps) : schedule_(schedule), steps_(steps) {
    demands_.reserve(static_cast<std::size_t>(steps.size()) * 6);
  }

  std::vector<Demand> collect(const std::vector<int>& partner) {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) blocks_of(rank);
    for (int rank = 0; rank < schedule_.ranks(); ++rank) channels_of(rank);
    for (int index = 0; index < steps_.size(); ++index) {
      demand(begin_of(index), end_of(index));
      demand(begin_of(partner[index]), end_of(index));
    }
    return std::move(demands_);
  }

 private:
  void demand(int before, int after) { demands_.push_back({before, after}); }

  void blocks_of(int rank) {
    writer_.assign(schedule_.blocks(), -1);
    readers_.assign(schedule_.blocks(), -1);
    pool_.clear();
    for (int index = steps_.first(rank); index < steps_.first(rank + 1); ++index) {
      const Step& step = steps_[index];
      if (step.action == Action::send) {
        read(index, step.run);
      } else {
        write(index, step.run);
      }
    }
  }

  void read(int index, Run run) {
    int last = -1;
    for (int block = run.first; block < run.end(); ++block) {
      if (writer_[block] >= 0 && writer_[block] != last) {
        last = writer_[block];
        demand(end_of(last), begin_of(index));
      }
      pool_.push_back({index, readers_[block]});
      readers_[block] = static_cast<int>(pool_.size()) - 1;
    }
  }

  void write(int index, Run run) {
    int last_writer = -1;
    int last_reader = -1;
    const auto follow = [&](int earlier, int& last) {
      if (earlier < 0 || earlier == last) return;
      last = earlier;
      demand(begin_of(earlier), begin_of(index));
      demand(end_of(earlier), end_of(index));
    };
    for (int block = run.first; block < run.end(); ++block) {
      follow(writer_[block], last_writer);
      for (int link = readers_[block]; link >= 0; link = pool_[link].next) follow(pool_[link].step, last_reader);
      writer_[block] = index;
      readers_[block] = -1;
    }
  }

  void channels_of(int rank) {
    last_send_.assign(schedule_.ranks(), -1);
    last_receive_.assign(schedule_.ranks(), -1);
    for (int index = steps_.first(rank); index < steps_.first(rank + 1); ++index) {
      const Step& step = steps_[index];
      int& last = step.action == Action::send ? last_send_[step.peer] : last_receive_[step.peer];
      if (last >= 0) {
        demand(begin_of(last), begin_of(index));
        if (step.action != Action::send) demand(end_of(last), end_of(index));
      }
      last = index;
    }
  }

  struct Reader {
    int step;
    int next;
  };

  const Schedule& schedule_;
  const StepTable& steps_;
  std::vector<Demand> demands_;
  std::vector<int> writer_;   // of each block: the last step that wrote it
  std::vector<int> readers_;  // of each block: the sends since then, as a list in pool_
  std::vector<Reader> pool_;
  std::vector<int> last_send_;
  std::vector<int> last_receive_;
};

// The demands by the event that they start from.
struct Graph {
  Graph(int events, const std::vector<Demand>& demands) : first(events + 1), after(demands.size()), waits(events) {
    for (const Demand& demand : demands) {
      ++first[demand.before];
      ++waits[demand.after];
    }
    int total = 0;
    for (int& offset : first) total = offset += total;
    for (const Demand& demand : demands) after[--first[demand.before]] = demand.after;
  }

  std::vector<int> first;
  std::vector<int> after;
  std::vector<int> waits;  // demands not yet met, of each event
};

// Walks back from an event that never happened, along demands never met, until it meets itself.
std::vector<int> find_cycle(const std::vector<Demand>& demands, const std::vector<int>& waits) {
  std::vector<int> blocker(waits.size(), -1);
  for (const Demand& demand : demands) {
    if (waits[demand.before] > 0) blocker[demand.after] = demand.before;
  }
  int event = static_cast<int>(std::find_if(waits.begin(), waits.end(), [](int n) { return n > 0; }) - waits.begin());
  std::vector<bool> visited(waits.size());
  while (!visited[event]) {
    visited[event] = true;
    event = blocker[event];
  }
  std::vector<int> cycle{step_of(event)};
  for (int at = blocker[event]; at != event; at = blocker[at]) {
    if (cycle.back() != step_of(at)) cycle.push_back(step_of(at));
  }
  if (cycle.size() > 1 && cycle.back() == cycle.front()) cycle.pop_back();
  return cycle;
}

Finding deadlock(const StepTable& steps, const std::vector<int>& cycle) {
  constexpr std::size_t kShown = 6;
  std::string chain;
  for (std::size_t i = 1; i < std::min(cycle.size(), kShown); ++i) {
    chain += fmt::format("{} waits for {}", i == 1 ? "" : ", which", describe(steps, cycle[i]));
  }
  if (cycle.size() > kShown) chain += fmt::format(", and {} more", cycle.size() - kShown);
  const int first = cycle.front();
  const int block = steps[first].run.first;
  return {steps.rank(first), steps.step(first), block,
          fmt::format("deadlock: {}, block {},{}, which waits for the first", describe(steps, first), block, chain)};
}

}  // namespace

Order order(const Schedule& schedule, const StepTable& steps, const std::vector<int>& partner) {
  const std::vector<Demand> demands = Collector(schedule, steps).collect(partner);
  Graph graph(2 * steps.size(), demands);
  Order result;
  result.steps.reserve(steps.size());

  std::vector<int> ready;
  std::vector<int> round(2 * static_cast<std::size_t>(steps.size()));
  for (int event = 0; event < 2 * steps.size(); ++event) {
    if (graph.waits[event] == 0) ready.push_back(event);
  }
  std::size_t happened = 0;
  while (!ready.empty()) {
    const int event = ready.back();
    ready.pop_back();
    ++happened;
    const int index = step_of(event);
    const bool sends = steps[index].action == Action::send;
    if (sends == (event == begin_of(index))) result.steps.push_back(index);
    result.rounds = std::max(result.rounds, round[event]);
    for (int i = graph.first[event]; i < graph.first[event + 1]; ++i) {
      const int after = graph.after[i];
      const bool to_partner = step_of(after) == partner[index];
      // A message takes a round; that a send waits for its receive takes none, since here no send waits.
      if (!to_partner) round[after] = std::max(round[after], round[event]);
      if (to_partner && sends) round[after] = std::max(round[after], round[event] + 1);
      if (--graph.waits[after] == 0) ready.push_back(after);
    }
  }
  if (happened < graph.waits.size()) result.finding = deadlock(steps, find_cycle(demands, graph.waits));
  return result;
}

}  // namespace trireme
