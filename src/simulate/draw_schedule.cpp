// A schedule as it went: a vertical line a rank, time downward, an arrow a message.
//
// Colour says which block a message carries, and only that. How it was taken shows in black and white too: what was
// added has a solid line and a filled circle with a plus, what was received a dashed line and an open arrow head.
#include "simulate/arrows.h"
#include "simulate/labels.h"
#include "simulate/legend.h"
#include "simulate/svg.h"
#include "trireme/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace trireme {
namespace {

constexpr double kAxisWidth = 76;

std::string to_label(Run run) {
  return run.count == 1 ? fmt::format("{}", run.first) : fmt::format("{}..{}", run.first, run.end() - 1);
}

std::string to_label(const Delivery& delivery) {
  if (delivery.sent == delivery.taken) return to_label(delivery.taken);
  return fmt::format("{}\u2192{}", to_label(delivery.sent), to_label(delivery.taken));
}

// 1, 2 or 5 times a power of ten, so that at most `most` steps fit the range.
double round_step(double range, double most) {
  const double power = std::pow(10, std::floor(std::log10(range / most)));
  for (const double factor : {1, 2, 5}) {
    if (range / (factor * power) <= most) return factor * power;
  }
  return 10 * power;
}

class ScheduleDrawing {
 public:
  ScheduleDrawing(const Schedule& schedule, const std::vector<Delivery>& deliveries)
      : schedule_(schedule), deliveries_(deliveries), colours_(schedule.blocks()) {
    for (const Delivery& delivery : deliveries) total_ = std::max(total_, delivery.ends);
    const int ranks = schedule.ranks();
    constexpr double kUsual = 880, kWidest = 2200;
    spacing_ = std::clamp(kUsual / std::max(ranks, 1), std::min(34.0, kWidest / std::max(ranks, 1)), 150.0);
    const double lines = spacing_ * std::max(ranks - 1, 0);
    width_ = std::max({640.0, kAxisWidth + lines + 2 * kMargin + 20, SvgPage::title_width(title())});
    first_line_ = kAxisWidth + (width_ - kAxisWidth - kMargin - lines) / 2;
    top_ = legend_bottom(schedule.blocks()) + 44;
    height_ = suitable_height();
    constexpr double kRoomy = 3000;  // square pixels a message
    weight_ = std::clamp(std::sqrt(lines * height_ / (kRoomy * static_cast<double>(deliveries.size() + 1))), 0.5, 1.0);
  }

  std::string draw(const std::string& caption) {
    page_.title(title());
    draw_legend(page_, schedule_.blocks());
    time_axis();
    rank_lines();
    messages();
    labels();
    if (deliveries_.empty()) page_.text({x(0) + 16, top_ + height_ / 2}, "no messages");
    const double end = page_.paragraph({kMargin, top_ + height_ + 40}, width_ - 2 * kMargin, caption);
    return page_.finish(width_, end + 8);
  }

 private:
  double x(int rank) const { return first_line_ + spacing_ * rank; }

  double y(Ticks time) const { return total_.count() == 0 ? top_ : top_ + height_ * (Seconds(time) / Seconds(total_)); }

  // High enough to tell the shortest message, and a rank's two closest sends, apart; but it's one page.
  double suitable_height() const {
    constexpr double kShortest = 40, kClosest = 22, kLeast = 320, kMost = 1150;
    std::map<int, std::vector<Ticks>> sends;
    double wished = 0;
    const auto give = [&](Ticks time, double pixels) {
      if (time.count() > 0) wished = std::max(wished, pixels * (Seconds(total_) / Seconds(time)));
    };
    for (const Delivery& delivery : deliveries_) {
      give(delivery.arrives - delivery.begins, kShortest);
      sends[delivery.from].push_back(delivery.begins);
    }
    for (auto& [rank, times] : sends) {
      std::sort(times.begin(), times.end());
      for (std::size_t i = 1; i < times.size(); ++i) give(times[i] - times[i - 1], kClosest);
    }
    return std::clamp(wished, deliveries_.empty() ? kLeast / 2 : kLeast, kMost);
  }

  std::string title() const {
    // The names of what is not an allreduce say what they are.
    const bool says_collective = schedule_.algorithm.find('/') != std::string::npos;
    std::string title = schedule_.algorithm;
    if (!says_collective) title += fmt::format("{}{}", title.empty() ? "" : " ", to_string(schedule_.collective));
    title += fmt::format(" on {}", counted(schedule_.workers(), "rank"));
    if (schedule_.servers > 0) title += fmt::format(" and {}", counted(schedule_.servers, "server"));
    return title + fmt::format(": {}", format_time(total_));
  }

  void time_axis() {
    if (total_.count() == 0) return;
    constexpr double kTick = 60;
    const double seconds = Seconds(total_).count();
    const double step = round_step(seconds, height_ / kTick);
    const bool in_ms = seconds >= 1e-3;
    for (int tick = 0; tick * step <= seconds; ++tick) {
      const double at = top_ + height_ * (tick * step / seconds);
      page_.line({kAxisWidth, at}, {width_ - kMargin, at}, R"(stroke="#eee")");
      page_.text({kAxisWidth - 8, at + 4},
                 fmt::format("{:.6g} {}", tick * step * (in_ms ? 1e3 : 1e6), in_ms ? "ms" : "us"),
                 R"(class="small" text-anchor="end")");
    }
  }

  void rank_lines() {
    const bool roomy = spacing_ > text_width(schedule_.servers > 0 ? "server 15" : "rank 15", 12) + 3;
    const int every = static_cast<int>(std::ceil(text_width("15", 9) / spacing_));  // the others have no label
    if (!roomy) page_.text({kAxisWidth - 8, top_ - 14}, "rank", R"(class="small" text-anchor="end")");
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const bool serves = rank >= schedule_.workers();
      page_.line({x(rank), top_ - 8}, {x(rank), top_ + height_ + 14},
                 fmt::format(R"(stroke="{}" stroke-width="1.2")", serves ? "#888" : "#bbb"));
      if (rank % every != 0) continue;
      page_.text({x(rank), top_ - 14}, fmt::format("{}{}", roomy ? (serves ? "server " : "rank ") : "", rank),
                 fmt::format(R"(text-anchor="middle" style="font-size:{}px")", roomy ? 12 : 9));
    }
  }

  Arrow arrow_of(const Delivery& delivery) const {
    const double short_of = delivery.adds ? plus_radius(weight_) + kBar / 2 : 0;
    const double end = x(delivery.to) + (delivery.from < delivery.to ? -short_of : short_of);
    return {{x(delivery.from), y(delivery.begins)}, {end, y(delivery.arrives)}};
  }

  void messages() {
    for (const Delivery& delivery : deliveries_) arrows_.push_back(arrow_of(delivery));
    bend_apart(arrows_);
    const std::vector<Ticks> began = turns();
    for (std::size_t i = 0; i < deliveries_.size(); ++i) {
      const Delivery& delivery = deliveries_[i];
      const std::string colour = colours_.of(delivery.taken);
      page_.open_group(delivery.adds ? R"(class="add")" : R"(class="receive")");
      page_.tooltip(fmt::format("{} to {}, block {}, {}: {} to {}", delivery.from, delivery.to, to_label(delivery),
                                delivery.adds ? "added" : "received", format_time(delivery.begins),
                                format_time(delivery.ends)));
      draw_arrow(page_, arrows_[i], delivery.adds, colour, weight_);
      draw_bar(page_, x(delivery.to), y(delivery.arrives), y(began[i]), colour, BarOf::waiting);
      draw_bar(page_, x(delivery.to), y(began[i]), y(delivery.ends), colour, BarOf::adding);
      page_.close_group();
    }
  }

  // When each message was put into place or began to be added: a rank adds one at a time, and to a block in the order
  // of its program.
  std::vector<Ticks> turns() const {
    std::vector<std::size_t> order(deliveries_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return deliveries_[a].ends < deliveries_[b].ends; });
    std::vector<Ticks> began(deliveries_.size()), adder_free(schedule_.ranks());
    std::map<std::pair<int, int>, Ticks> written;  // by rank and block
    for (const std::size_t i : order) {
      const Delivery& delivery = deliveries_[i];
      Ticks turn = delivery.adds ? delivery.arrives : delivery.ends;
      if (delivery.adds) turn = std::max(turn, std::exchange(adder_free[delivery.to], delivery.ends));
      for (int block = delivery.taken.first; block < delivery.taken.end(); ++block) {
        turn = std::max(turn, std::exchange(written[{delivery.to, block}], delivery.ends));
      }
      began[i] = turn;
    }
    return began;
  }

  // All or none, more or less: where most don't fit, the rest would only puzzle.
  void labels() {
    constexpr std::size_t kMost = 600;
    constexpr double kSize = 9, kHeight = 12, kMostLeftOut = 0.2;
    if (schedule_.blocks() == 1 || deliveries_.size() > kMost) return;
    std::vector<double> widths;
    for (const Delivery& delivery : deliveries_) widths.push_back(text_width(to_label(delivery), kSize) + 6);
    std::vector<Arrow> lines = arrows_;
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      lines.emplace_back(Point{x(rank), top_}, Point{x(rank), top_ + height_});
    }
    const std::vector<std::optional<Point>> places = place_on_arrows(lines, widths, kHeight);
    const auto left_out = std::count(places.begin(), places.end(), std::nullopt);
    if (static_cast<double>(left_out) > kMostLeftOut * static_cast<double>(places.size())) return;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!places[i]) continue;
      page_.rect(
          Box::around(*places[i], widths[i], kHeight),
          fmt::format(R"(rx="3" fill="#fff" stroke="{}" stroke-width="0.7")", colours_.of(deliveries_[i].taken)));
      page_.text({places[i]->x, places[i]->y + 3.2}, to_label(deliveries_[i]),
                 R"(class="block" text-anchor="middle" style="font-size:9px")");
    }
  }

  const Schedule& schedule_;
  const std::vector<Delivery>& deliveries_;
  const BlockColours colours_;
  Ticks total_{0};
  double spacing_, width_, height_, first_line_, top_;
  double weight_;  // of lines and heads: less where there are many
  std::vector<Arrow> arrows_;
  SvgPage page_;
};

}  // namespace

std::string draw_schedule(const Schedule& schedule, const std::vector<Delivery>& deliveries,
                          const std::string& caption) {
  return ScheduleDrawing(schedule, deliveries).draw(caption);
}

}  // namespace trireme
