#include "peers/worker.h"

#include "trireme/error.h"
#include "trireme/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <iostream>
#include <sstream>

namespace trireme::peers {
namespace {

struct Timing {
  double median_us = 0;
  double min_us = 0;
};

// Small whole numbers, so that sums are exact in whatever order a library takes them.
float value(int rank, std::size_t index) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 5 + index * 3) % 61);
}

float sum(int ranks, std::size_t index) {
  float total = 0;
  for (int rank = 0; rank < ranks; ++rank) total += value(rank, index);
  return total;
}

// What one rank starts with and must end with. Elements have the index that they have in the whole buffer.
class Trial {
 public:
  Trial(Collective collective, std::uint64_t bytes, const Library& library)
      : collective_(collective), rank_(library.rank()), ranks_(library.ranks()) {
    const std::size_t elements = std::max<std::size_t>(1, (bytes + sizeof(float) - 1) / sizeof(float));
    const auto ranks = static_cast<std::size_t>(ranks_);
    share_ = (elements + ranks - 1) / ranks;
    first_ = static_cast<std::size_t>(rank_) * share_;
    switch (collective) {
      case Collective::allreduce:
      case Collective::broadcast:
      case Collective::reduce: buffers.whole.resize(elements); break;
      case Collective::all_to_all: buffers.other.resize(share_ * ranks); [[fallthrough]];
      case Collective::reduce_scatter:
      case Collective::allgather:
      case Collective::gather:
      case Collective::scatter:
        buffers.whole.resize(share_ * ranks);
        buffers.share.resize(share_);
        break;
      case Collective::barrier: break;
    }
  }

  void fill() {
    for (std::size_t i = 0; i < buffers.whole.size(); ++i) buffers.whole[i] = value(rank_, i);
    for (std::size_t i = 0; i < buffers.share.size(); ++i) buffers.share[i] = value(rank_, first_ + i);
  }

  // Zeros stay finite however often they are added.
  void clear() {
    for (std::vector<float>* buffer : {&buffers.whole, &buffers.other, &buffers.share}) {
      std::fill(buffer->begin(), buffer->end(), 0.0F);
    }
  }

  void check() const {
    const auto summed = [&](std::size_t i) { return sum(ranks_, i); };
    const auto owned = [&](std::size_t i) { return value(static_cast<int>(i / share_), i); };
    switch (collective_) {
      case Collective::allreduce: return check(buffers.whole, summed);
      case Collective::broadcast: return check(buffers.whole, [](std::size_t i) { return value(0, i); });
      case Collective::reduce:
        if (rank_ == 0) check(buffers.whole, summed);
        return;
      case Collective::allgather: return check(buffers.whole, owned);
      case Collective::gather:
        if (rank_ == 0) check(buffers.whole, owned);
        return;
      case Collective::reduce_scatter:
        return check(buffers.share, [&](std::size_t i) { return sum(ranks_, first_ + i); });
      case Collective::scatter: return check(buffers.share, [&](std::size_t i) { return value(0, first_ + i); });
      case Collective::all_to_all:
        return check(buffers.other,
                     [&](std::size_t i) { return value(static_cast<int>(i / share_), first_ + i % share_); });
      case Collective::barrier: return;
    }
  }

  Buffers buffers;

 private:
  template <typename Expected>
  void check(const std::vector<float>& buffer, Expected expected) const {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (buffer[i] == expected(i)) continue;
      throw Error(fmt::format("wrong result of {}: rank {} of {} has {} at {} of {}, not {}", to_string(collective_),
                              rank_, ranks_, buffer[i], i, buffer.size(), expected(i)));
    }
  }

  Collective collective_;
  int rank_;
  int ranks_;
  std::size_t share_ = 0;
  std::size_t first_ = 0;
};

Timing measure(Library& library, const Order& order, std::size_t way) {
  Trial trial(order.collective, order.bytes, library);
  const auto once = [&] { library.run(order.collective, way, trial.buffers); };
  trial.fill();
  once();
  trial.check();
  trial.clear();
  for (int i = 0; i < std::clamp(order.repeats / 10, 2, 50); ++i) once();
  std::vector<double> microseconds;
  microseconds.reserve(order.repeats);
  for (int i = 0; i < order.repeats; ++i) {
    library.barrier();
    const auto begin = std::chrono::steady_clock::now();
    once();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    microseconds.push_back(took.count());
  }
  library.greatest(microseconds);
  std::sort(microseconds.begin(), microseconds.end());
  return {.median_us = microseconds[microseconds.size() / 2], .min_us = microseconds.front()};
}

// All ranks measure every way; rank 0 knows the times.
void obey(Library& library, const Order& order) {
  const std::vector<std::string> ways = library.ways(order.collective);
  Timing best;
  std::string name;
  for (std::size_t way = 0; way < ways.size(); ++way) {
    const Timing timing = measure(library, order, way);
    if (way > 0 && timing.median_us >= best.median_us) continue;
    best = timing;
    name = ways[way];
  }
  if (library.rank() != 0) return;
  fmt::print("{},{},{},{},{:.2f},{:.2f}\n", name, to_string(order.collective), library.ranks(), order.bytes,
             best.median_us, best.min_us);
}

Order parse(const std::string& line, const Library& library) {
  if (line == "quit") return {.quit = true};
  std::istringstream words(line);
  std::string collective;
  std::string bytes;
  Order order;
  std::string rest;
  if (!(words >> collective >> bytes >> order.repeats) || words >> rest || order.repeats < 1) {
    throw UsageError(fmt::format("'{}' is not COLLECTIVE BYTES REPEATS", line));
  }
  order.collective = parse_collective(collective);
  order.bytes = parse_bytes(bytes);
  // MPI counts elements in int.
  if (order.bytes > sizeof(float) * (INT_MAX - 1024ULL)) throw UsageError("more bytes than a peer can count");
  if (library.ways(order.collective).empty()) throw UsageError(fmt::format("it has no {}", collective));
  return order;
}

// Rank 0's next order that makes sense; what doesn't is answered here.
Order read_order(const Library& library) {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    try {
      return parse(line, library);
    } catch (const UsageError& error) {
      fmt::print("error,{}\n", error.what());
      std::fflush(stdout);
    }
  }
  return {.quit = true};
}

}  // namespace

void serve(Library& library, const std::string& name) {
  library.barrier();
  if (library.rank() == 0) {
    fmt::print("{},ready,{}\n", name, library.ranks());
    std::fflush(stdout);
  }
  while (true) {
    Order order;
    if (library.rank() == 0) order = read_order(library);
    library.share(order);
    if (order.quit) return;
    obey(library, order);
    std::fflush(stdout);
  }
}

}  // namespace trireme::peers
