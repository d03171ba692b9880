// A race: time against bytes, both logarithmic, a line an algorithm.
//
// Those that win somewhere have a colour and a thick line, thickest where they win. The others are thin and greyish,
// and differ in tint and dashes. Names stand beside the ends of the lines, so that nobody has to look them up.
#include "simulate/labels.h"
#include "simulate/svg.h"
#include "trireme/draw.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace trireme {
namespace {

constexpr double kPlotWidth = 680, kPlotHeight = 480;
constexpr double kLeft = 84, kTop = 60;
constexpr double kRight = kLeft + kPlotWidth, kBottom = kTop + kPlotHeight;
constexpr double kBandTop = kBottom + 6, kBandBottom = kBandTop + 22;
constexpr double kSample = kRight + 20, kNames = kSample + 30;  // a piece of the line, and its name

struct Style {
  std::string stroke;
  double width;
  std::string_view dashes;
};

Style winners_style(int index) {
  constexpr std::array<std::string_view, 3> kDashes{"", "12 3", "4 3"};
  return {std::string(colour(index)), 2.4, kDashes[index / kColours % kDashes.size()]};
}

Style losers_style(int index) {
  constexpr std::array<std::string_view, 4> kTints{"#8c8c8c", "#a3836b", "#6b8ba3", "#8f7ba0"};
  constexpr std::array<std::string_view, 4> kDashes{"8 3", "2 2.5", "10 3 2 3", "4 2.5"};
  // Neighbours differ in both, and all sixteen in one.
  return {std::string(kTints[(index + index / 4) % 4]), 1.3, kDashes[index % 4]};
}

// Sizes in a row that one algorithm wins: the first, and the one after the last.
struct Stretch {
  int winner;  // an entry
  std::size_t begin, end;
};

std::vector<Stretch> stretches(const std::vector<int>& winners) {
  std::vector<Stretch> found;
  for (std::size_t i = 0; i < winners.size(); ++i) {
    if (found.empty() || found.back().winner != winners[i]) found.push_back({winners[i], i, i});
    found.back().end = i + 1;
  }
  return found;
}

// Where a positive range of values is on an axis.
class LogAxis {
 public:
  LogAxis(double least, double most, double begin, double end)
      : low_(std::log2(least)), high_(std::log2(most)), begin_(begin), end_(end) {}

  double operator()(double value) const { return std::lerp(begin_, end_, (std::log2(value) - low_) / (high_ - low_)); }
  double doublings() const { return high_ - low_; }
  bool shows(double value) const { return std::log2(value) >= low_ && std::log2(value) <= high_; }

 private:
  double low_, high_, begin_, end_;
};

// Zero has no place on a logarithmic axis, so it is where nothing else is.
constexpr double kNoTime = 1e-9;
double on_axis(std::uint64_t bytes) { return static_cast<double>(std::max<std::uint64_t>(bytes, 1)); }
double on_axis(Seconds time) { return std::max(time.count(), kNoTime); }

LogAxis axis_of_bytes(const Race& race) {
  double least = on_axis(race.bytes.front()), most = on_axis(race.bytes.back());
  if (most == least) {
    least /= 2;
    most *= 2;
  }
  return {least, most, kLeft, kRight};
}

LogAxis axis_of_times(const Race& race) {
  double least = 1e9, most = 0;
  for (const Race::Entry& entry : race.entries) {
    for (const Seconds time : entry.times) {
      least = std::min(least, on_axis(time));
      most = std::max(most, on_axis(time));
    }
  }
  constexpr double kRoom = 1.3;
  return {least / kRoom, most * kRoom, kBottom, kTop};
}

class RaceDrawing {
 public:
  explicit RaceDrawing(const Race& race)
      : race_(race),
        x_(axis_of_bytes(race)),
        y_(axis_of_times(race)),
        stretches_(stretches(race.winners)),
        styles_(race.entries.size()),
        wins_(race.entries.size()) {
    int winners = 0;
    for (const Stretch& stretch : stretches_) {
      if (!wins_[stretch.winner]) styles_[stretch.winner] = winners_style(winners++);
      wins_[stretch.winner] = true;
    }
    int losers = 0;
    for (const int entry : by_last_time()) {
      if (!wins_[entry]) styles_[entry] = losers_style(losers++);
    }
  }

  std::string draw(const std::string& caption) {
    page_.title(fmt::format("{} on {}: time against bytes", to_string(race_.collective), counted(race_.ranks, "rank")));
    axis_of_bytes_below();
    axis_of_times_beside();
    lines();
    names();
    band();
    const double width = page_width();
    double y = page_.paragraph({kMargin, kBandBottom + 52}, width - 2 * kMargin, who_wins());
    y = page_.paragraph({kMargin, y + 2}, width - 2 * kMargin, caption);
    return page_.finish(width, y + 8);
  }

 private:
  Point at(int entry, std::size_t size) const {
    return {x_(on_axis(race_.bytes[size])), y_(on_axis(race_.entries[entry].times[size]))};
  }

  std::string bytes_at(std::size_t size) const { return format_bytes(static_cast<double>(race_.bytes[size])); }

  bool one_size() const { return race_.bytes.size() == 1; }

  double page_width() const {
    double widest = 0;
    for (const Race::Entry& entry : race_.entries) widest = std::max(widest, text_width(entry.algorithm, 12));
    return kNames + widest + kMargin;
  }

  std::vector<int> by_last_time() const {
    std::vector<int> order(race_.entries.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return race_.entries[a].times.back() < race_.entries[b].times.back(); });
    return order;
  }

  void axis_of_bytes_below() {
    constexpr double kTick = 62;
    constexpr std::array<int, 4> kSteps{1, 2, 5, 10};  // doublings; ten make the next unit
    const int step = *std::find_if(kSteps.begin(), kSteps.end() - 1,
                                   [&](int doublings) { return kPlotWidth * doublings / x_.doublings() >= kTick; });
    if (one_size()) return tick_below(on_axis(race_.bytes.front()));
    for (int power = 0; power < 64; power += step) {
      if (x_.shows(std::exp2(power))) tick_below(std::exp2(power));
    }
  }

  void tick_below(double bytes) {
    page_.line({x_(bytes), kTop}, {x_(bytes), kBottom}, R"(stroke="#e4e4e4")");
    page_.text({x_(bytes), kBandBottom + 18}, format_bytes(bytes), R"(class="small" text-anchor="middle")");
  }

  void axis_of_times_beside() {
    constexpr double kFewDoublings = 7;
    for (int power = -9; power < 9; ++power) {
      for (const int factor : {1, 2, 5}) {
        const double seconds = factor * std::pow(10, power);
        if (!y_.shows(seconds)) continue;
        const bool decade = factor == 1;
        page_.line({kLeft, y_(seconds)}, {kRight, y_(seconds)},
                   fmt::format(R"(stroke="{}")", decade ? "#ccc" : "#efefef"));
        if (!decade && y_.doublings() > kFewDoublings) continue;
        page_.text({kLeft - 8, y_(seconds) + 4}, seconds > 1.5 * kNoTime ? format_time(Seconds(seconds)) : "0",
                   R"(class="small" text-anchor="end")");
      }
    }
  }

  void polyline(const std::vector<Point>& points, const Style& style, std::string_view more = "") {
    std::string data;
    for (const Point& point : points) {
      data += fmt::format("{}{:.1f} {:.1f}", data.empty() ? "M" : "L", point.x, point.y);
    }
    page_.path(data,
               fmt::format(R"(fill="none" stroke="{}" stroke-width="{}" stroke-linejoin="round"{}{})", style.stroke,
                           style.width,
                           style.dashes.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", style.dashes), more));
  }

  // Losers last: thin lines on thick ones are seen, and the other way round they would not be.
  void lines() {
    for (const Stretch& stretch : stretches_) {
      polyline(part(stretch), {styles_[stretch.winner].stroke, 6, ""}, R"( stroke-opacity="0.45")");
    }
    for (const bool wins : {true, false}) {
      for (std::size_t entry = 0; entry < race_.entries.size(); ++entry) {
        if (wins_[entry] == wins) line(static_cast<int>(entry));
      }
    }
  }

  void line(int entry) {
    page_.open_group(wins_[entry] ? R"(class="winner")" : R"(class="loser")");
    page_.tooltip(race_.entries[entry].algorithm);
    polyline(part({entry, 0, race_.bytes.size()}), styles_[entry]);
    page_.close_group();
  }

  // Of a winner's line, to half-way to the sizes where another wins.
  std::vector<Point> part(const Stretch& stretch) const {
    const auto between = [&](std::size_t a, std::size_t b) {
      const Point first = at(stretch.winner, a), second = at(stretch.winner, b);
      return Point{(first.x + second.x) / 2, (first.y + second.y) / 2};
    };
    if (one_size()) return {{kLeft, at(stretch.winner, 0).y}, {kRight, at(stretch.winner, 0).y}};
    std::vector<Point> points;
    if (stretch.begin > 0) points.push_back(between(stretch.begin - 1, stretch.begin));
    for (std::size_t size = stretch.begin; size < stretch.end; ++size) points.push_back(at(stretch.winner, size));
    if (stretch.end < race_.bytes.size()) points.push_back(between(stretch.end - 1, stretch.end));
    return points;
  }

  void names() {
    constexpr double kGap = 15;
    std::vector<double> wished;
    for (std::size_t entry = 0; entry < race_.entries.size(); ++entry) {
      wished.push_back(at(static_cast<int>(entry), race_.bytes.size() - 1).y);
    }
    const double gap = std::min(kGap, kPlotHeight / static_cast<double>(wished.size()));
    const std::vector<double> places = spread(wished, gap, kTop, kBottom);
    for (std::size_t entry = 0; entry < race_.entries.size(); ++entry) {
      const std::string& stroke = styles_[entry].stroke;
      page_.line({kRight + 2, wished[entry]}, {kSample, places[entry]},
                 fmt::format(R"(stroke="{}" stroke-width="0.8")", stroke));
      polyline({{kSample, places[entry]}, {kNames - 5, places[entry]}}, styles_[entry]);
      page_.text({kNames, places[entry] + 4}, race_.entries[entry].algorithm,
                 wins_[entry] ? fmt::format(R"(style="fill:{};font-weight:bold")", stroke) : R"(style="fill:#666")");
    }
  }

  void band() {
    page_.text({kLeft - 8, kBandTop + 15}, "fastest", R"(class="small" text-anchor="end")");
    for (const Stretch& stretch : stretches_) {
      const std::vector<Point> won = part(stretch);
      const double begin = won.front().x, end = won.back().x;
      const std::string& name = race_.entries[stretch.winner].algorithm;
      page_.open_group(R"(class="fastest")");
      page_.tooltip(fmt::format("{}: {} to {}", name, bytes_at(stretch.begin), bytes_at(stretch.end - 1)));
      page_.rect({begin, kBandTop, end, kBandBottom},
                 fmt::format(R"(fill="{}" stroke="#fff")", styles_[stretch.winner].stroke));
      if (text_width(name, 11) < end - begin) {
        page_.text({(begin + end) / 2, kBandTop + 15}, name,
                   R"(class="small" style="fill:#fff;font-weight:bold" text-anchor="middle")");
      }
      page_.close_group();
    }
  }

  // In words, since a short stretch has no room for its name.
  std::string who_wins() const {
    std::string words = "Fastest:";
    for (const Stretch& stretch : stretches_) {
      const std::string& name = race_.entries[stretch.winner].algorithm;
      if (stretch.end == race_.bytes.size())
        return words + fmt::format("{} {}.", stretch.begin > 0 ? " then" : "", name);
      words += fmt::format(" {} up to {},", name, bytes_at(stretch.end - 1));
    }
    return words;
  }

  const Race& race_;
  const LogAxis x_, y_;
  const std::vector<Stretch> stretches_;
  std::vector<Style> styles_;  // by entry, like wins_
  std::vector<bool> wins_;
  SvgPage page_;
};

}  // namespace

std::string draw_race(const Race& race, const std::string& caption) {
  if (race.entries.empty() || race.bytes.empty()) throw UsageError("a race without algorithms or sizes can't be drawn");
  return RaceDrawing(race).draw(caption);
}

}  // namespace trireme
