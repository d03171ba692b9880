// One step on each rank: what it computed and when it stopped for messages, and below it the reduction of each bucket,
// in two colours: what went by while backward computed, and what while it waited.
#include "drawing.h"
#include "record.h"
#include "trireme/units.h"

#include <algorithm>
#include <array>
#include <utility>

namespace makemore {
namespace {

constexpr double kWidth = 1000;
constexpr double kLeft = 140, kRight = kWidth - 16, kTop = 8;
constexpr double kLane = 24, kGap = 20, kBetween = 3;

std::string took(const Span& span) { return trireme::format_time(trireme::Seconds(span.seconds())); }

// For where there is little room: 42 KiB, where it is 42.398.
std::string short_size(std::size_t bytes) {
  double rounded = 1;
  while (rounded * 1024 <= static_cast<double>(bytes)) rounded *= 1024;
  return trireme::format_bytes(std::round(static_cast<double>(bytes) / rounded) * rounded);
}

class StepDrawing {
 public:
  StepDrawing(const Timelines& timelines, std::size_t index) {
    for (const auto& steps : timelines) steps_.push_back(steps.at(index));
    begin_ = steps_.front().whole().begin;
    end_ = steps_.front().whole().end;
    for (const StepSpans& step : steps_) {
      begin_ = std::min(begin_, step.whole().begin);
      end_ = std::max(end_, step.whole().end);
      buckets_ = std::max(buckets_, step.buckets.size());
    }
    // Many buckets have thin lanes without names.
    lane_ = std::clamp(96 / static_cast<double>(std::max<std::size_t>(buckets_, 1)), 2.0, 16.0);
  }

  std::string draw() {
    const double per_rank = kLane + static_cast<double>(buckets_) * (lane_ + kBetween) + kGap;
    const double bottom = kTop + per_rank * static_cast<double>(steps_.size()) - kGap / 2;
    axis(bottom);
    double y = kTop;
    for (std::size_t rank = 0; rank < steps_.size(); ++rank, y += per_rank) {
      if (rank > 0) drawing_.line(16, y - kGap / 2, kRight, y - kGap / 2, "grid");
      draw_rank(rank, y);
    }
    return drawing_.finish(kWidth, bottom + 44, "one step on each rank");
  }

 private:
  double x(double seconds) const { return kLeft + (kRight - kLeft) * seconds / (Span{begin_, end_}.seconds()); }
  double x(std::int64_t time) const { return x(Span{begin_, time}.seconds()); }

  void axis(double bottom) {
    for (const double time : ticks(0, Span{begin_, end_}.seconds(), 8)) {
      drawing_.line(x(time), kTop, x(time), bottom + 5, "grid");
      drawing_.text(x(time), bottom + 20, time == 0 ? "0" : trireme::format_time(trireme::Seconds(time)),
                    "tick middle");
    }
    drawing_.line(kLeft, bottom, kRight, bottom, "axis");
    drawing_.text((kLeft + kRight) / 2, bottom + 38, "time since the first rank began the step", "tick middle");
  }

  void draw_rank(std::size_t rank, double y) {
    const StepSpans& step = steps_[rank];
    drawing_.text(16, y + 17, fmt::format("rank {}", rank), "rank");
    const std::array<std::pair<const char*, Span>, 5> phases = {{{"batch", step.batch},
                                                                 {"forward", step.forward},
                                                                 {"backward", step.backward},
                                                                 {"waiting", step.waiting},
                                                                 {"optimiser", step.optimiser}}};
    for (const auto& [name, span] : phases) {
      drawing_.bar(x(span.begin), y, width(span), kLane, name, fmt::format("{}: {}", name, took(span)));
    }
    for (const Span& exchange : step.exchanges) {
      drawing_.bar(x(exchange.begin), y, width(exchange), kLane, "waiting",
                   fmt::format("batch norm's statistics: {}", took(exchange)));
    }
    for (const auto& [name, span] : phases) label(name, span, y);
    y += kLane + kBetween;
    for (std::size_t i = 0; i < step.buckets.size(); ++i, y += lane_ + kBetween) {
      reduction(i, step, y);
    }
  }

  void label(const char* name, const Span& span, double y) {
    constexpr double kLetter = 6.6, kRoom = 8;
    if (kLetter * static_cast<double>(std::string_view(name).size()) + kRoom > width(span)) return;
    drawing_.text((x(span.begin) + x(span.end)) / 2, y + 16, name, "on middle");
  }

  void reduction(std::size_t index, const StepSpans& step, double y) {
    const StepSpans::Bucket& bucket = step.buckets[index];
    const std::vector<StepSpans::Part> parts = step.parts_of(bucket.reduction);
    double hidden = 0;
    for (const auto& part : parts) hidden += part.hidden ? part.span.seconds() : 0;
    const std::string tip = fmt::format("bucket {} of {}: reduced in {}, {} of it while backward went on", index,
                                        trireme::format_bytes(static_cast<double>(bucket.bytes)),
                                        took(bucket.reduction), trireme::format_time(trireme::Seconds(hidden)));
    for (const auto& [span, is_hidden] : parts) {
      drawing_.bar(x(span.begin), y, width(span), lane_, is_hidden ? "hidden" : "waited", tip);
    }
    constexpr double kReadable = 11;
    if (lane_ >= kReadable) {
      drawing_.text(kLeft - 10, y + lane_ / 2 + 4, fmt::format("bucket {}, {}", index, short_size(bucket.bytes)),
                    "tick end");
    }
  }

  // What is there should be seen.
  double width(const Span& span) const { return std::max(0.75, x(span.end) - x(span.begin)); }

  std::vector<StepSpans> steps_;
  std::int64_t begin_ = 0, end_ = 0;
  std::size_t buckets_ = 0;
  double lane_ = 0;
  Drawing drawing_;
};

}  // namespace

std::string draw_step(const Record& record) {
  return StepDrawing(record.timelines, typical_step(record.timelines)).draw();
}

}  // namespace makemore
