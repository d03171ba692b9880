#include "simulate/legend.h"

#include "simulate/arrows.h"

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr double kTop = 58;
constexpr double kLine = 24;
constexpr std::string_view kGrey = "#444";

// These return where the next thing may start.
double draw_words(SvgPage& page, Point at, std::string_view words) {
  page.text({at.x, at.y + 4}, words, R"(class="small")");
  return at.x + text_width(words, 11) + 18;
}

double draw_ends(SvgPage& page, Point at, bool adds) {
  constexpr double kSample = 40;
  draw_arrow(page, {at, {at.x + kSample - (adds ? plus_radius(1) : 0), at.y}}, adds, kGrey, 1);
  at.x += kSample + 8;
  return draw_words(page, at, adds ? "added to what is there" : "received, overwrites");
}

double draw_bars(SvgPage& page, Point at, BarOf what) {
  constexpr double kHalf = 7;
  draw_bar(page, at.x, at.y - kHalf, at.y + kHalf, kGrey, what);
  at.x += 10;
  return draw_words(page, at, what == BarOf::adding ? "adding" : "waiting for its turn");
}

void draw_number(SvgPage& page, Point at, int block, std::string_view anchor) {
  page.text({at.x, at.y + 4}, fmt::format("{}", block),
            fmt::format(R"(class="small" style="fill:#fff" text-anchor="{}")", anchor));
}

void draw_swatches(SvgPage& page, Point at, int blocks) {
  const BlockColours colours(blocks);
  const int last = blocks - 1;
  const int swatches = colours.few() ? blocks : 40;
  const double width = colours.few() ? 24 : 6;
  for (int i = 0; i < swatches; ++i) {
    const int block = static_cast<int>(static_cast<std::int64_t>(i) * last / (swatches - 1));
    page.rect(Box::around({at.x + width * (i + 0.5), at.y}, width, 15), fmt::format(R"(fill="{}")", colours.of(block)));
    if (colours.few()) draw_number(page, {at.x + width * (i + 0.5), at.y}, block, "middle");
  }
  if (colours.few()) return;
  draw_number(page, {at.x + 4, at.y}, 0, "start");
  draw_number(page, {at.x + width * swatches - 4, at.y}, last, "end");
}

}  // namespace

std::string BlockColours::of(Run run) const {
  if (few()) return std::string(colour(run.first));
  return ramp_colour((run.first + (run.count - 1) / 2.0) / (blocks_ - 1));
}

void draw_legend(SvgPage& page, int blocks) {
  Point at{kMargin, kTop};
  for (const bool adds : {true, false}) at.x = draw_ends(page, at, adds);
  for (const BarOf what : {BarOf::adding, BarOf::waiting}) at.x = draw_bars(page, at, what);
  if (blocks == 1) return;
  draw_words(page, {kMargin, kTop + kLine}, "block");
  draw_swatches(page, {kMargin + 40, kTop + kLine}, blocks);
}

double legend_bottom(int blocks) { return kTop + (blocks == 1 ? 0 : kLine) + kLine / 2; }

}  // namespace trireme
