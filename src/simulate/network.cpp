// The three regular networks.
#include "trireme/network.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

class Switch : public Network {
 public:
  Switch(int ranks, const Link& link) : Network(ranks, true), latency_(to_ticks(link.alpha)) {
    for (int way = 0; way < 2 * ranks; ++way) add_way(link);
  }

  Hop hop(int at, int to) const override {
    if (at < ranks()) return {.way = at, .at = ranks(), .latency = latency_};
    return {.way = ranks() + to, .at = to, .latency = Ticks(0)};
  }

  std::optional<LinkGraph> links(int) const override { return {}; }

 private:
  Ticks latency_;
};

// Places: ranks, then a switch a host, then the switch between hosts.
class TwoLevel : public Network {
 public:
  TwoLevel(int ranks, int ranks_per_host, const Link& inside, const Link& between)
      : Network(ranks, true, ranks_per_host),
        hosts_((ranks + ranks_per_host - 1) / ranks_per_host),
        inside_(inside),
        between_(between) {
    for (int way = 0; way < 2 * ranks; ++way) add_way(inside);
    for (int way = 0; way < 2 * hosts_; ++way) add_way(between);
  }

  Hop hop(int at, int to) const override {
    const int core = ranks() + hosts_;
    const int host = to / ranks_per_host();
    if (at < ranks()) {
      const bool stays = at / ranks_per_host() == host;
      return {.way = at, .at = ranks() + at / ranks_per_host(), .latency = stays ? inner_latency_ : Ticks(0)};
    }
    if (at == core) return {.way = 2 * ranks() + hosts_ + host, .at = ranks() + host, .latency = Ticks(0)};
    const int here = at - ranks();
    if (here == host) return {.way = ranks() + to, .at = to, .latency = Ticks(0)};
    return {.way = 2 * ranks() + here, .at = core, .latency = outer_latency_};
  }

  std::optional<LinkGraph> links(int ranks) const override {
    check_packable(ranks);
    LinkGraph graph{.ranks = ranks, .bandwidth = {}, .edges = {}};
    graph.bandwidth.assign(ranks, inside_.bandwidth);
    graph.bandwidth.resize(ranks + hosts_, between_.bandwidth);
    for (int a = 0; a < ranks; ++a) {
      for (int b = a + 1; b < ranks; ++b) {
        const int host_a = a / ranks_per_host();
        const int host_b = b / ranks_per_host();
        std::vector<int> passed{a, b};
        if (host_a != host_b) passed.insert(passed.end(), {ranks + host_a, ranks + host_b});
        graph.edges.push_back({a, b, std::move(passed)});
      }
    }
    return graph;
  }

 private:
  int hosts_;
  Link inside_, between_;
  Ticks inner_latency_ = to_ticks(inside_.alpha);
  Ticks outer_latency_ = to_ticks(between_.alpha);
};

// Every rank has four ways out: to the next and previous column, to the next and previous row.
class Torus : public Network {
 public:
  Torus(int rows, int columns, const Link& link)
      : Network(rows * columns, false, 0, rows), columns_(columns), link_(link) {
    for (int way = 0; way < 4 * ranks(); ++way) add_way(link);
  }

  Hop hop(int at, int to) const override {
    const int row = at / columns_;
    const int column = at % columns_;
    if (const int move = shorter(to % columns_ - column, columns_)) {
      const int next = (column + move + columns_) % columns_;
      return {.way = 4 * at + (move > 0 ? 0 : 1), .at = row * columns_ + next, .latency = latency_};
    }
    const int move = shorter(to / columns_ - row, rows());
    const int next = (row + move + rows()) % rows();
    return {.way = 4 * at + (move > 0 ? 2 : 3), .at = next * columns_ + column, .latency = latency_};
  }

  std::optional<LinkGraph> links(int ranks) const override {
    LinkGraph graph{.ranks = ranks, .bandwidth = {}, .edges = {}};
    const auto join = [&](int a, int b) {
      if (a == b || b >= ranks) return;
      graph.edges.push_back({a, b, {static_cast<int>(graph.bandwidth.size())}});
      graph.bandwidth.push_back(link_.bandwidth);
    };
    for (int rank = 0; rank < ranks; ++rank) {
      const int row = rank / columns_;
      const int column = rank % columns_;
      // Two columns or rows are joined by one pair of neighbours, not by two.
      if (columns_ > 2 || column == 0) join(rank, row * columns_ + (column + 1) % columns_);
      if (rows() > 2 || row == 0) join(rank, (row + 1) % rows() * columns_ + column);
    }
    return graph;
  }

 private:
  // One step in the direction in which a circle of `size` is shorter to walk; 0 when there.
  static int shorter(int distance, int size) {
    const int ahead = (distance + size) % size;
    if (ahead == 0) return 0;
    return ahead <= size / 2 ? 1 : -1;
  }

  int columns_;
  Link link_;
  Ticks latency_ = to_ticks(link_.alpha);
};

}  // namespace

void Network::check_packable(int ranks) {
  constexpr int kMostForPairs = 1024;
  if (ranks > kMostForPairs) {
    throw UsageError(
        fmt::format("blink packs trees among the pairs of at most {} ranks here, not {}", kMostForPairs, ranks));
  }
}

int Network::add_way(const Link& link) {
  ways_.push_back({1e12 / link.bandwidth, to_ticks(Seconds(link.burst / link.bandwidth))});
  return ways() - 1;
}

std::unique_ptr<Network> make_switch(int ranks, const Link& link) { return std::make_unique<Switch>(ranks, link); }

std::unique_ptr<Network> make_two_level(int ranks, int ranks_per_host, const Link& inside, const Link& between) {
  return std::make_unique<TwoLevel>(ranks, ranks_per_host, inside, between);
}

std::unique_ptr<Network> make_torus(int rows, int columns, const Link& link) {
  return std::make_unique<Torus>(rows, columns, link);
}

}  // namespace trireme
