// A network of any shape.
#include "trireme/error.h"
#include "trireme/network.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <queue>

namespace trireme {
namespace {

constexpr int kMostPlaces = 4096;

// A message takes the path that is fastest for a message of this size, whatever its own.
constexpr double kTypicalBytes = 1 << 20;

class Graph : public Network {
 public:
  Graph(int ranks, int switches, const std::vector<GraphLink>& links)
      : Network(ranks, false),
        places_(ranks + switches),
        links_(links),
        hops_(static_cast<std::size_t>(places_) * ranks) {
    std::vector<std::vector<Neighbour>> neighbours(places_);
    for (int i = 0; i < static_cast<int>(links.size()); ++i) {
      for (int way = 0; way < 2; ++way) add_way(links[i].link);
      neighbours[links[i].a].push_back({links[i].b, i});
      neighbours[links[i].b].push_back({links[i].a, i});
    }
    for (int to = 0; to < ranks; ++to) find_paths(to, neighbours);
  }

  Hop hop(int at, int to) const override { return hops_[static_cast<std::size_t>(at) * ranks() + to]; }

  std::optional<LinkGraph> links(int ranks) const override {
    check_packable(ranks);
    LinkGraph graph{.ranks = ranks, .bandwidth = {}, .edges = {}};
    for (const GraphLink& link : links_) graph.bandwidth.push_back(link.link.bandwidth);
    for (int a = 0; a < ranks; ++a) {
      for (int b = a + 1; b < ranks; ++b) {
        LinkGraph::Edge edge{a, b, {}};
        int at = a;
        do {
          const Hop next = hop(at, b);
          edge.links.push_back(next.way / 2);
          at = next.at;
        } while (at >= this->ranks());
        // A path through a third rank is no edge: that rank is a better neighbour.
        if (at == b) graph.edges.push_back(std::move(edge));
      }
    }
    return graph;
  }

 private:
  struct Neighbour {
    int place;
    int link;
  };

  // Dijkstra from `to` backwards: links are the same both ways.
  void find_paths(int to, const std::vector<std::vector<Neighbour>>& neighbours) {
    std::vector<double> cost(places_, std::numeric_limits<double>::infinity());
    using Entry = std::pair<double, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    cost[to] = 0;
    queue.push({0, to});
    while (!queue.empty()) {
      const auto [reached, place] = queue.top();
      queue.pop();
      if (reached > cost[place]) continue;
      for (const auto& [other, link] : neighbours[place]) {
        const Link& properties = links_[link].link;
        const double through = reached + properties.alpha.count() + kTypicalBytes / properties.bandwidth;
        if (through >= cost[other]) continue;
        cost[other] = through;
        const int way = 2 * link + (links_[link].a == other ? 0 : 1);
        hops_[static_cast<std::size_t>(other) * ranks() + to] = {way, place, to_ticks(properties.alpha)};
        queue.push({through, other});
      }
    }
    for (int rank = 0; rank < ranks(); ++rank) {
      if (cost[rank] == std::numeric_limits<double>::infinity()) {
        throw UsageError(fmt::format("the graph is not connected: no links lead from rank {} to rank {}", rank, to));
      }
    }
  }

  int places_;
  std::vector<GraphLink> links_;
  std::vector<Hop> hops_;
};

}  // namespace

std::unique_ptr<Network> make_graph(int ranks, int switches, const std::vector<GraphLink>& links) {
  if (ranks < 1 || switches < 0 || ranks + switches > kMostPlaces) {
    throw UsageError(
        fmt::format("a graph has 1 to {} ranks and switches, not {} and {}", kMostPlaces, ranks, switches));
  }
  for (const GraphLink& link : links) {
    const bool exist = link.a >= 0 && link.b >= 0 && link.a < ranks + switches && link.b < ranks + switches;
    if (!exist || link.a == link.b) {
      throw UsageError(fmt::format("a link can't join {} and {}: it joins two different places from 0 to {}", link.a,
                                   link.b, ranks + switches - 1));
    }
    if (!(link.link.bandwidth > 0) || link.link.alpha < Seconds(0)) {
      throw UsageError(
          fmt::format("the link between {} and {} has no positive bandwidth or a negative latency", link.a, link.b));
    }
  }
  return std::make_unique<Graph>(ranks, switches, links);
}

}  // namespace trireme
