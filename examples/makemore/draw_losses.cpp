// The loss of each step on the ranks as a line, and in one process as rings here and there: if all is right, the line
// goes through all of them.
#include "drawing.h"
#include "record.h"

#include <algorithm>

namespace makemore {
namespace {

constexpr double kWidth = 1000, kHeight = 330;
constexpr double kLeft = 56, kRight = kWidth - 16, kTop = 14, kBottom = kHeight - 46;

class Losses {
 public:
  explicit Losses(const Record& record) : record_(record) {
    for (const auto* losses : {&record.losses, &record.one_process}) {
      for (const double loss : *losses) {
        if (!std::isfinite(loss)) continue;  // a rate that is too high
        least_ = std::min(least_, loss);
        most_ = std::max(most_, loss);
      }
    }
    if (least_ > most_) least_ = 0, most_ = 1;
    const double room = std::max(0.05 * (most_ - least_), 1e-3);
    least_ -= room;
    most_ += room;
  }

  std::string draw() {
    for (const double loss : ticks(least_, most_, 6)) {
      drawing_.line(kLeft, y(loss), kRight, y(loss), "grid");
      drawing_.text(kLeft - 8, y(loss) + 4, fmt::format("{:.3g}", loss), "tick end");
    }
    for (const double step : ticks(1, last(), 10)) {
      if (step != std::floor(step)) continue;
      drawing_.line(x(step), kBottom, x(step), kBottom + 5, "axis");
      drawing_.text(x(step), kBottom + 19, fmt::format("{:.0f}", step), "tick middle");
    }
    drawing_.line(kLeft, kBottom, kRight, kBottom, "axis");
    drawing_.text((kLeft + kRight) / 2, kHeight - 6, "step", "tick middle");
    path(record_.losses);
    rings(record_.one_process);
    return drawing_.finish(kWidth, kHeight, "the loss of each step");
  }

 private:
  double last() const { return std::max(2.0, static_cast<double>(record_.losses.size())); }
  double x(double step) const { return kLeft + (kRight - kLeft) * (step - 1) / (last() - 1); }
  double y(double loss) const { return kBottom - (kBottom - kTop) * (loss - least_) / (most_ - least_); }

  void path(const std::vector<double>& losses) {
    std::string data;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (!std::isfinite(losses[i])) break;
      fmt::format_to(std::back_inserter(data), "{}{:.1f} {:.1f}", data.empty() ? "M" : "L",
                     x(static_cast<double>(i + 1)), y(losses[i]));
    }
    if (!data.empty()) drawing_.add(R"(<path d="{}" class="ranks"/>)", data);
  }

  // Not at every step: a second line would hide the first.
  void rings(const std::vector<double>& losses) {
    for (std::size_t i = 0; i < losses.size(); i += ring_every(losses.size())) {
      if (!std::isfinite(losses[i])) break;
      drawing_.add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" class="one"><title>step {}: {:.6f}</title></circle>)",
                   x(static_cast<double>(i + 1)), y(losses[i]), i + 1, losses[i]);
    }
  }

  const Record& record_;
  double least_ = 1e300, most_ = -1e300;
  Drawing drawing_;
};

}  // namespace

std::size_t ring_every(std::size_t steps) {
  constexpr std::size_t kRings = 50;
  return std::max<std::size_t>(1, steps / kRings);
}

std::string draw_losses(const Record& record) { return Losses(record).draw(); }

}  // namespace makemore
