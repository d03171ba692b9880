// BytePS: extra ranks without a model serve beside the workers. Each rank, worker or server, adds up its own part of
// the buffer; the parts are sized so that the links of servers and workers are equally busy.
//   rounds  2, any P >= 1 and 0 <= k <= P servers, which are ranks P, ..., P+k-1
//   sent    2P(P-1)/D buffers by every rank, with D = P^2 + kP - 2k: a server's part is 2(P-1)/D, a worker's (P-k)/D
//   result  the same bits on every rank
// The time of 2P(P-1)/D buffers needs both directions busy at once, that is, many segments.
// Jiang et al., A Unified Architecture for Accelerating Distributed DNN Training, OSDI 2020.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

struct Parts {
  Parts(int workers, int servers) {
    const int common = std::gcd(servers > 0 ? 2 * (workers - 1) : 0, workers - servers);
    of_server = 2 * (workers - 1) / common;
    of_worker = (workers - servers) / common;
    total = workers * of_worker + servers * of_server;
    split = workers;
  }

  Run part(int owner) const {
    if (owner < split) return {owner * of_worker, of_worker};
    return {split * of_worker + (owner - split) * of_server, of_server};
  }

  int of_server, of_worker, total, split;
};

}  // namespace

Program byteps(int rank, int ranks, int servers, int segments) {
  if (ranks == 1) return {.blocks = 1};
  const Parts parts(ranks, servers);
  const bool works = rank < ranks;
  const Circle workers{ranks};
  const Circle owners{ranks + servers};
  Program program{.blocks = parts.total * segments};

  const auto part = [&](int owner, int segment) {
    const Run run = parts.part(owner);
    return Run(segment * parts.total + run.first, run.count);
  };
  // Calls step(owner) for every other rank that owns a part, each worker in a turn of its own.
  const auto each_owner = [&](int direction, auto&& step) {
    for (int i = 1; i < owners.size; ++i) {
      const int owner = owners(rank + direction * i);
      if (parts.part(owner).count > 0) step(owner);
    }
  };
  // Calls step(worker) for every other worker from `first` on, in one direction or the other, if there is a part for
  // it.
  const auto each_worker = [&](int first, int direction, auto&& step) {
    for (int i = 0; i < ranks; ++i) {
      const int worker = workers(first + direction * i);
      if (worker != rank && parts.part(rank).count > 0) step(worker);
    }
  };

  // All pushes first: nothing holds them up, and so no pull stands in their way.
  for (int segment = 0; works && segment < segments; ++segment) {
    each_owner(1, [&](int owner) { program.send(part(owner, segment), owner); });
  }
  for (int segment = 0; segment < segments; ++segment) {
    const Run own = part(rank, segment);
    bool holds_something = works;
    // In the order in which the pushes come: the rank just before this one, or the last worker, reaches it first.
    each_worker(std::min(rank, ranks) - 1, -1, [&](int worker) {
      holds_something ? program.add(own, worker) : program.receive(own, worker);
      holds_something = true;
    });
    each_worker(rank + 1, 1, [&](int worker) { program.send(own, worker); });
  }
  for (int segment = 0; works && segment < segments; ++segment) {
    each_owner(-1, [&](int owner) { program.receive(part(owner, segment), owner); });
  }
  return program;
}

}  // namespace trireme
