// Packing spanning trees. The best packing of fractions of trees is a linear program over all spanning trees; this
// comes close to it in little time: the buffer is dealt out in equal units, each to the spanning tree that costs least
// where a link costs the more the busier it is, and then every unit is taken up and dealt again until nothing improves.
#include "trireme/packing.h"

#include "algorithms/parts.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme {
namespace {

using EdgeList = std::vector<int>;  // of a tree, by index into LinkGraph::edges, in ascending order

// Sets of ranks that are joined already.
class Components {
 public:
  explicit Components(int ranks) : parent_(ranks) { std::iota(parent_.begin(), parent_.end(), 0); }

  int find(int rank) {
    while (parent_[rank] != rank) rank = parent_[rank] = parent_[parent_[rank]];
    return rank;
  }

  bool join(int a, int b) {
    a = find(a);
    b = find(b);
    parent_[a] = b;
    return a != b;
  }

 private:
  std::vector<int> parent_;
};

class Packer {
 public:
  explicit Packer(const LinkGraph& graph) : graph_(graph), load_(graph.bandwidth.size()) {
    double widest = 0;
    for (const double bandwidth : graph.bandwidth) widest = std::max(widest, bandwidth);
    for (const double bandwidth : graph.bandwidth) time_.push_back(widest / bandwidth);
  }

  // Deals out `units`; returns the tree of each.
  std::vector<EdgeList> pack(int units) {
    std::fill(load_.begin(), load_.end(), 0);
    std::vector<EdgeList> trees;
    for (int i = 0; i < units; ++i) {
      trees.push_back(cheapest_tree());
      load(trees.back(), 1);
    }
    constexpr int kPasses = 8;
    for (int pass = 0; pass < kPasses; ++pass) {
      const double before = congestion();
      for (EdgeList& tree : trees) {
        load(tree, -1);
        tree = cheapest_tree();
        load(tree, 1);
      }
      if (congestion() >= before) break;
    }
    return trees;
  }

  // The time that the busiest link needs, when a unit on the widest link takes 1.
  double congestion() const {
    double most = 0;
    for (std::size_t link = 0; link < load_.size(); ++link) most = std::max(most, load_[link] * time_[link]);
    return most;
  }

 private:
  void load(const EdgeList& tree, int units) {
    for (const int edge : tree) {
      for (const int link : graph_.edges[edge].links) load_[link] += units;
    }
  }

  // What one more unit adds to the sum of powers of the links' busy times: a smooth stand-in for the busiest link. The
  // higher the power the closer it stands; this one of the widest ratio that rates can have still fits a double.
  double cost(const LinkGraph::Edge& edge) const {
    constexpr double kPower = 16;
    double cost = 0;
    for (const int link : edge.links) {
      cost += std::pow((load_[link] + 1) * time_[link], kPower) - std::pow(load_[link] * time_[link], kPower);
    }
    return cost;
  }

  EdgeList cheapest_tree() const {
    std::vector<double> costs;
    for (const LinkGraph::Edge& edge : graph_.edges) costs.push_back(cost(edge));
    std::vector<int> order(graph_.edges.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return costs[a] < costs[b]; });
    Components components(graph_.ranks);
    EdgeList tree;
    for (const int edge : order) {
      if (components.join(graph_.edges[edge].a, graph_.edges[edge].b)) tree.push_back(edge);
    }
    if (static_cast<int>(tree.size()) != graph_.ranks - 1) {
      throw UsageError("the links do not connect all ranks, so no tree spans them");
    }
    std::sort(tree.begin(), tree.end());
    return tree;
  }

  const LinkGraph& graph_;
  std::vector<double> time_;  // of a unit on each link
  std::vector<int> load_;     // units on each link
};

// Parents when the tree hangs from `root`, in `order`, the ranks from the root outward.
std::vector<int> hang(const std::vector<std::vector<int>>& neighbours, int root, std::vector<int>& order) {
  std::vector<int> parent(neighbours.size(), -1);
  order = {root};
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const int next : neighbours[order[i]]) {
      if (next == parent[order[i]]) continue;
      parent[next] = order[i];
      order.push_back(next);
    }
  }
  return parent;
}

// A tree's root is the middle of its longest path, which makes it as low as it can be.
PackedTree rooted(const LinkGraph& graph, const EdgeList& tree, int blocks) {
  std::vector<std::vector<int>> neighbours(graph.ranks);
  for (const int edge : tree) {
    neighbours[graph.edges[edge].a].push_back(graph.edges[edge].b);
    neighbours[graph.edges[edge].b].push_back(graph.edges[edge].a);
  }
  std::vector<int> order;
  hang(neighbours, 0, order);
  const int one_end = order.back();
  const std::vector<int> parent = hang(neighbours, one_end, order);
  std::vector<int> path;
  for (int at = order.back(); at >= 0; at = parent[at]) path.push_back(at);
  const int middle = path[path.size() / 2];
  return {.root = middle, .parent = hang(neighbours, middle, order), .blocks = blocks};
}

void check_graph(const LinkGraph& graph) {
  const auto is_in = [](int index, std::size_t size) { return index >= 0 && static_cast<std::size_t>(index) < size; };
  if (graph.ranks < 1) throw UsageError(fmt::format("{} ranks have no links to pack trees into", graph.ranks));
  const std::size_t ranks = graph.ranks;
  for (const double bandwidth : graph.bandwidth) {
    if (bandwidth > 0 && std::isfinite(bandwidth)) continue;
    throw UsageError(fmt::format("a link of bandwidth {} can't carry a tree", bandwidth));
  }
  for (const auto& [a, b, links] : graph.edges) {
    const bool joins = is_in(a, ranks) && is_in(b, ranks) &&
                       std::all_of(links.begin(), links.end(), [&](int l) { return is_in(l, graph.bandwidth.size()); });
    if (!joins) throw UsageError(fmt::format("the edge between ranks {} and {} names what is not in the graph", a, b));
  }
}

}  // namespace

int PackedTree::depth(int rank) const {
  int depth = 0;
  for (int at = rank; parent[at] >= 0; at = parent[at]) ++depth;
  return depth;
}

int PackedTree::height() const {
  int height = 0;
  for (int rank = 0; rank < static_cast<int>(parent.size()); ++rank) height = std::max(height, depth(rank));
  return height;
}

TreePacking pack_trees(const LinkGraph& graph) {
  check_graph(graph);
  if (graph.ranks == 1) return {.blocks = 1, .trees = {{.root = 0, .parent = {-1}, .blocks = 1}}};
  if (graph.edges.empty()) throw UsageError("the links do not connect all ranks, so no tree spans them");
  Packer packer(graph);

  // More units come nearer to the best packing, in more blocks; take the fewest that are within 1 % of the best tried.
  constexpr int kMostUnits = 128;
  constexpr std::size_t kMostWork = 1 << 21;
  struct Attempt {
    double time;  // of the whole buffer
    std::vector<EdgeList> trees;
  };
  std::vector<Attempt> attempts;
  double best = 0;
  for (const int units : {1, 2, 3, 4, 6, 8, graph.ranks / 2, graph.ranks, 2 * graph.ranks, 48, 64, 96, kMostUnits}) {
    const bool affordable = units <= kMostUnits && units * graph.edges.size() <= kMostWork;
    if (units < 1 || (units > 1 && !affordable)) continue;
    std::vector<EdgeList> trees = packer.pack(units);
    attempts.push_back({packer.congestion() / units, std::move(trees)});
    best = attempts.size() == 1 ? attempts.back().time : std::min(best, attempts.back().time);
  }
  std::stable_sort(attempts.begin(), attempts.end(),
                   [](const Attempt& a, const Attempt& b) { return a.trees.size() < b.trees.size(); });
  std::vector<EdgeList>& trees =
      std::find_if(attempts.begin(), attempts.end(), [&](const Attempt& a) { return a.time <= 1.01 * best; })->trees;

  std::sort(trees.begin(), trees.end());
  std::vector<PackedTree> packed;
  int common = 0;
  for (auto tree = trees.begin(); tree != trees.end();) {
    const auto next = std::find_if(tree, trees.end(), [&](const EdgeList& other) { return other != *tree; });
    const int units = static_cast<int>(next - tree);
    packed.push_back(rooted(graph, *tree, units));
    common = std::gcd(common, units);
    tree = next;
  }
  TreePacking packing;
  for (PackedTree& tree : packed) {
    tree.blocks /= common;
    packing.blocks += tree.blocks;
  }
  packing.trees = std::move(packed);
  return packing;
}

}  // namespace trireme
