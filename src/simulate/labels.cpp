#include "simulate/labels.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace trireme {
namespace {

// Labels that touch, and move together so that their centre is where the labels' wishes have theirs.
struct Cluster {
  double wish;  // of the middle
  int labels;

  double first(double gap) const { return wish - gap * (labels - 1) / 2; }
};

Cluster joined(Cluster above, Cluster below) {
  const int labels = above.labels + below.labels;
  return {(above.wish * above.labels + below.wish * below.labels) / labels, labels};
}

Cluster kept_between(double top, double bottom, Cluster cluster, double gap) {
  const double half = gap * (cluster.labels - 1) / 2;
  cluster.wish = std::max(std::min(cluster.wish, bottom - half), top + half);
  return cluster;
}

// Whether the straight line from a to b passes the box: cut it down to what lies within one pair of sides, then the
// other.
bool passes(Point a, Point b, const Box& box) {
  double begin = 0, end = 1;
  const auto cut = [&](double from, double to, double low, double high) {
    if (from == to) return from > low && from < high;
    const double enters = (low - from) / (to - from), leaves = (high - from) / (to - from);
    begin = std::max(begin, std::min(enters, leaves));
    end = std::min(end, std::max(enters, leaves));
    return begin < end;
  };
  return cut(a.x, b.x, box.left, box.right) && cut(a.y, b.y, box.top, box.bottom);
}

// A bent arrow is nearly its two halves.
bool passes(const Arrow& arrow, const Box& box) {
  const Point middle = arrow.at(0.5);
  return passes(arrow.from, middle, box) || passes(middle, arrow.to, box);
}

}  // namespace

std::vector<double> spread(std::span<const double> wished, double gap, double top, double bottom) {
  std::vector<std::size_t> order(wished.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return wished[a] < wished[b]; });

  std::vector<Cluster> clusters;
  for (const std::size_t label : order) {
    Cluster cluster = kept_between(top, bottom, {wished[label], 1}, gap);
    while (!clusters.empty() && cluster.first(gap) < clusters.back().first(gap) + gap * clusters.back().labels) {
      cluster = kept_between(top, bottom, joined(clusters.back(), cluster), gap);
      clusters.pop_back();
    }
    clusters.push_back(cluster);
  }

  std::vector<double> places(wished.size());
  auto label = order.begin();
  for (const Cluster& cluster : clusters) {
    for (int i = 0; i < cluster.labels; ++i) places[*label++] = cluster.first(gap) + gap * i;
  }
  return places;
}

std::vector<std::optional<Point>> place_on_arrows(std::span<const Arrow> arrows, std::span<const double> widths,
                                                  double height) {
  // Before the middle, where two that pass each other cross.
  constexpr std::array kParts{0.35, 0.28, 0.42, 0.6, 0.22, 0.68, 0.5, 0.76, 0.16};
  constexpr long kMost = 3;  // with its own
  std::vector<std::optional<Point>> places(widths.size());
  std::vector<Box> taken;
  for (std::size_t label = 0; label < widths.size(); ++label) {
    long fewest = kMost + 1;
    for (const double part : kParts) {
      const Point place = arrows[label].at(part);
      const Box box = Box::around(place, widths[label], height);
      if (std::any_of(taken.begin(), taken.end(), [&](const Box& other) { return box.overlaps(other); })) continue;
      const long covered =
          std::count_if(arrows.begin(), arrows.end(), [&](const Arrow& arrow) { return passes(arrow, box); });
      if (covered >= fewest) continue;
      fewest = covered;
      places[label] = place;
    }
    if (places[label]) taken.push_back(Box::around(*places[label], widths[label], height));
  }
  return places;
}

}  // namespace trireme
