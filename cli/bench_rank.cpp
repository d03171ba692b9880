// One rank of Trireme under measurement, driven line by line as the workers of other libraries are (bench/peers).
//
// When all ranks are up, rank 0 prints "trireme,ready,RANKS". Then it reads commands, one a line:
//   COLLECTIVE BYTES REPEATS BUFFERS ALGORITHM
// with BUFFERS window or ordinary, and ALGORITHM a name or `chosen`. The answer is
// "trireme,COLLECTIVE,RANKS,BYTES,median_us,min_us,ALGORITHM", with the name of what was chosen; "error,WHY" if it
// can't be done. `quit`, or the end of the input, ends all ranks.
//
// A run is timed on every rank from its own start, and is over when its slowest rank is; each follows a barrier. What
// is not asked uses no processor.
#include "cli/commands.h"
#include "trireme/algorithms.h"
#include "trireme/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace trireme::cli {
namespace {

/// What rank 0 tells the others, as plain bytes.
struct Order {
  bool quit = false;
  bool window = false;
  Collective collective = Collective::allreduce;
  std::uint64_t bytes = 0;
  int repeats = 0;
  std::array<char, 64> algorithm = {};

  std::string_view name() const { return algorithm.data(); }

  /// What its result depends on.
  auto key() const { return std::tuple(collective, bytes, window, std::string(name())); }
};

/// Once is enough, and all ranks know of the same.
using CheckedOrders = std::set<decltype(std::declval<Order>().key())>;

/// Memory of either kind.
class Floats {
 public:
  Floats(Communicator& world, std::size_t elements, bool window) {
    if (window) {
      window_ = world.window(elements * sizeof(float));
      span_ = window_.as<float>().first(elements);
    } else {
      ordinary_.resize(elements);
      span_ = ordinary_;
    }
  }
  std::span<float> all() const { return span_; }

 private:
  Window window_;
  std::vector<float> ordinary_;
  std::span<float> span_;
};

/// One collective on its buffers, ready to be run again and again.
class Trial {
 public:
  Trial(Communicator& world, const Order& order)
      : world_(world),
        order_(order),
        share_elements_(divide_up(std::max<std::uint64_t>(1, order.bytes / sizeof(float)), world.ranks())),
        elements_(has_shares() ? share_elements_ * world.ranks() : order.bytes / sizeof(float)),
        whole_(world, elements_, order.window),
        other_(world, order.collective == Collective::all_to_all ? elements_ : 0, order.window),
        share_(world, has_shares() ? share_elements_ : 0, order.window) {}

  void run() {
    const CallOptions options{.algorithm = order_.name()};
    switch (order_.collective) {
      case Collective::allreduce: return world_.allreduce(whole_.all(), Op::sum, options);
      case Collective::reduce_scatter: return world_.reduce_scatter(whole_.all(), share_.all(), Op::sum, options);
      case Collective::allgather: return world_.allgather(share_.all(), whole_.all(), options);
      case Collective::broadcast: return world_.broadcast(whole_.all(), 0, options);
      case Collective::reduce: return world_.reduce(whole_.all(), 0, Op::sum, options);
      case Collective::gather: return world_.gather(share_.all(), whole_.all(), 0, options);
      case Collective::scatter: return world_.scatter(whole_.all(), share_.all(), 0, options);
      case Collective::all_to_all: return world_.all_to_all(whole_.all(), other_.all(), options);
      case Collective::barrier: return world_.barrier(options);
    }
  }

  /// Runs once with known values. Throws if the result is wrong.
  void check() {
    const int rank = world_.rank();
    const std::size_t share = share_elements_;
    const std::size_t first = static_cast<std::size_t>(rank) * share;
    const auto mine = [=](std::size_t i) { return value(rank, i); };
    const auto of_root = [](std::size_t i) { return value(0, i); };
    const auto of_owner = [=](std::size_t i) { return value(static_cast<int>(i / share), i); };
    const auto summed = [ranks = world_.ranks()](std::size_t i) {
      float sum = 0;
      for (int other = 0; other < ranks; ++other) sum += value(other, i);
      return sum;
    };
    for (std::size_t i = 0; i < whole_.all().size(); ++i) whole_.all()[i] = mine(i);
    for (std::size_t i = 0; i < share_.all().size(); ++i) share_.all()[i] = mine(first + i);
    run();
    switch (order_.collective) {
      case Collective::allreduce: return expect(whole_.all(), summed);
      case Collective::reduce: return rank == 0 ? expect(whole_.all(), summed) : expect(whole_.all(), mine);
      case Collective::broadcast: return expect(whole_.all(), of_root);
      case Collective::allgather: return expect(whole_.all(), of_owner);
      case Collective::gather: return rank == 0 ? expect(whole_.all(), of_owner) : expect(whole_.all(), mine);
      case Collective::reduce_scatter: return expect(share_.all(), [=](std::size_t i) { return summed(first + i); });
      case Collective::scatter: return expect(share_.all(), [=](std::size_t i) { return of_root(first + i); });
      case Collective::all_to_all:
        return expect(other_.all(),
                      [=](std::size_t i) { return value(static_cast<int>(i / share), first + i % share); });
      case Collective::barrier: return;
    }
  }

  /// Zeros stay finite however often they are added.
  void clear() {
    for (const Floats* buffer : {&whole_, &other_, &share_}) {
      std::fill(buffer->all().begin(), buffer->all().end(), 0.0F);
    }
  }

 private:
  // Small whole numbers, so that sums are exact in whatever order they are taken. They differ by rank and index,
  // however far apart, so that a misplaced block is seen.
  static float value(int rank, std::size_t index) {
    const auto mixed = (static_cast<std::uint32_t>(index) + static_cast<std::uint32_t>(rank) * 40503U) * 2654435761U;
    return static_cast<float>(mixed >> 26U);
  }

  static std::size_t divide_up(std::uint64_t value, int by) {
    const auto parts = static_cast<std::uint64_t>(by);
    return (value + parts - 1) / parts;
  }

  bool has_shares() const {
    return order_.collective != Collective::allreduce && order_.collective != Collective::broadcast &&
           order_.collective != Collective::reduce && order_.collective != Collective::barrier;
  }

  template <typename Expected>
  void expect(std::span<const float> values, Expected expected) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == expected(i)) continue;
      throw Error(fmt::format("{} of {} bytes by {} is wrong: element {} of rank {} is {}, not {}",
                              to_string(order_.collective), order_.bytes,
                              order_.name().empty() ? "what selection takes" : order_.name(), i, world_.rank(),
                              values[i], expected(i)));
    }
  }

  Communicator& world_;
  const Order& order_;
  std::size_t share_elements_;
  std::size_t elements_;
  Floats whole_;
  Floats other_;
  Floats share_;
};

Order read_order() {
  Order order;
  std::string line;
  if (!std::getline(std::cin, line) || line == "quit") {
    order.quit = true;
    return order;
  }
  std::istringstream words(line);
  std::string collective;
  std::string buffers;
  std::string algorithm;
  words >> collective >> order.bytes >> order.repeats >> buffers >> algorithm;
  if (!words || order.repeats < 1 || algorithm.size() >= order.algorithm.size()) {
    throw UsageError(fmt::format("'{}' is no command", line));
  }
  order.collective = parse_collective(collective);
  order.window = buffers == "window";
  if (algorithm != "chosen") std::memcpy(order.algorithm.data(), algorithm.data(), algorithm.size());
  return order;
}

std::vector<double> measure(Communicator& world, const Order& order, CheckedOrders& checked) {
  using Clock = std::chrono::steady_clock;
  Trial trial(world, order);
  if (checked.insert(order.key()).second) trial.check();
  trial.clear();
  const int warm_ups = std::max(2, order.repeats / 10);
  std::vector<double> microseconds;
  for (int i = -warm_ups; i < order.repeats; ++i) {
    world.barrier();
    const auto begin = Clock::now();
    trial.run();
    const double time = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    if (i >= 0) microseconds.push_back(time);
  }
  world.allreduce(microseconds, Op::max);
  std::sort(microseconds.begin(), microseconds.end());
  return microseconds;
}

// The name in the communicator's sentence "... runs by NAME: ...".
std::string chosen(Communicator& world, const Order& order) {
  constexpr std::string_view kBefore = " runs by ";
  const std::string sentence = world.explain(to_string(order.collective), order.bytes);
  const std::size_t at = sentence.find(kBefore);
  if (at == std::string::npos) return "chosen";
  const std::size_t begin = at + kBefore.size();
  return sentence.substr(begin, sentence.find(':', begin) - begin);
}

int serve() {
  Communicator world = init();
  CheckedOrders checked;
  const bool first = world.rank() == 0;
  if (first) fmt::print("trireme,ready,{}\n", world.ranks());
  while (true) {
    std::fflush(stdout);
    Order order;
    if (first) {
      try {
        order = read_order();
      } catch (const UsageError& error) {
        fmt::print("error,{}\n", error.what());
        continue;
      }
    }
    // Nobody knows how long the next command takes to come.
    world.broadcast(Buffer(&order, sizeof order, Dtype::u8), 0, {.deadline = std::chrono::hours(24)});
    if (order.quit) return 0;
    try {
      const std::vector<double> times = measure(world, order, checked);
      const std::string name = order.name().empty() ? chosen(world, order) : std::string(order.name());
      if (first) {
        fmt::print("trireme,{},{},{},{:.2f},{:.2f},{}\n", to_string(order.collective), world.ranks(), order.bytes,
                   times[times.size() / 2], times.front(), name);
      }
    } catch (const UsageError& error) {
      if (first) fmt::print("error,{}\n", error.what());
    }
  }
}

}  // namespace

void add_bench_rank(CLI::App& app, Action& run) {
  CLI::App* command = app.add_subcommand("bench-rank", "One rank of `trireme bench`; not for people.");
  command->group("");
  command->callback([&run] { run = serve; });
}

}  // namespace trireme::cli
