#include "simulate/arrows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace trireme {
namespace {

void draw_plus(SvgPage& page, Point at, std::string_view colour, double weight) {
  constexpr double kSmallest = 3;
  const double radius = plus_radius(weight), arm = 0.6 * radius;
  page.circle(at, radius, fmt::format(R"(fill="{}")", colour));
  if (radius < kSmallest) return;  // A plus would look like a hole.
  page.path(fmt::format("M{:.1f} {:.1f}H{:.1f}M{:.1f} {:.1f}V{:.1f}", at.x - arm, at.y, at.x + arm, at.x, at.y - arm,
                        at.y + arm),
            fmt::format(R"(stroke="#fff" stroke-width="{:.1f}")", 1.6 * weight));
}

void draw_open_head(SvgPage& page, const Arrow& arrow, std::string_view colour, double weight) {
  const Point bend = arrow.bend, tip = arrow.to;
  const double length = std::hypot(tip.x - bend.x, tip.y - bend.y);
  if (length == 0) return;
  const Point along{9 * weight * (tip.x - bend.x) / length, 9 * weight * (tip.y - bend.y) / length};
  const Point across{-0.45 * along.y, 0.45 * along.x};
  page.path(
      fmt::format("M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}", tip.x - along.x + across.x, tip.y - along.y + across.y,
                  tip.x, tip.y, tip.x - along.x - across.x, tip.y - along.y - across.y),
      fmt::format(R"(fill="none" stroke="{}" stroke-width="{:.2f}")", colour, 1.6 * weight));
}

void fan_out(const std::vector<Arrow*>& group) {
  constexpr double kApart = 24, kWidest = 72;
  const double last = static_cast<double>(group.size()) - 1;
  const double apart = last > 0 ? std::min(kApart, kWidest / last) : 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    Arrow& arrow = *group[i];
    const Point along{arrow.to.x - arrow.from.x, arrow.to.y - arrow.from.y};
    const double length = std::hypot(along.x, along.y);
    const double aside = length > 0 ? (static_cast<double>(i) - last / 2) * apart / length : 0;
    arrow.bend.x += aside * along.y;
    arrow.bend.y -= aside * along.x;
  }
}

}  // namespace

Point Arrow::at(double part) const {
  const double a = (1 - part) * (1 - part), b = 2 * part * (1 - part), c = part * part;
  return {a * from.x + b * bend.x + c * to.x, a * from.y + b * bend.y + c * to.y};
}

void bend_apart(std::span<Arrow> arrows) {
  constexpr double kTooClose = 3;
  std::vector<std::vector<Arrow*>> groups;                // that hide each other
  std::map<std::pair<double, double>, std::size_t> last;  // group, by where arrows begin and end across the page
  for (Arrow& arrow : arrows) {
    const auto [entry, first] = last.try_emplace({arrow.from.x, arrow.to.x}, groups.size());
    const auto hides = [&](const Arrow& other) {
      return std::abs(other.from.y - arrow.from.y) + std::abs(other.to.y - arrow.to.y) < kTooClose;
    };
    if (!first && hides(*groups[entry->second].front())) {
      groups[entry->second].push_back(&arrow);
    } else {
      entry->second = groups.size();
      groups.push_back({&arrow});
    }
  }
  for (const std::vector<Arrow*>& group : groups) fan_out(group);
}

double plus_radius(double weight) { return 5 * weight; }

void draw_arrow(SvgPage& page, const Arrow& arrow, bool adds, std::string_view colour, double weight) {
  page.path(fmt::format("M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}", arrow.from.x, arrow.from.y, arrow.bend.x,
                        arrow.bend.y, arrow.to.x, arrow.to.y),
            fmt::format(R"(fill="none" stroke="{}" stroke-width="{:.2f}" stroke-opacity="{:.2f}"{})", colour,
                        1.7 * weight, 0.3 + 0.6 * weight, adds ? "" : R"( stroke-dasharray="5 3")"));
  if (adds) {
    draw_plus(page, arrow.to, colour, weight);
  } else {
    draw_open_head(page, arrow, colour, weight);
  }
}

void draw_bar(SvgPage& page, double middle, double top, double bottom, std::string_view colour, BarOf what) {
  if (top == bottom) return;
  const double half = (what == BarOf::adding ? kBar : 2.4) / 2;
  page.rect({middle - half, top, middle + half, bottom}, fmt::format(R"(fill="{}")", colour));
}

}  // namespace trireme
