// Shapes and text of the report's pictures. Colours are classes of the page's style, which has them for light and dark.
#pragma once

#include "trireme/draw.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace makemore {

class Drawing {
 public:
  template <typename... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Values>(values)...);
    body_ += '\n';
  }

  void line(double x1, double y1, double x2, double y2, std::string_view classes) {
    add(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>)", x1, y1, x2, y2, classes);
  }

  void text(double x, double y, std::string_view text, std::string_view classes) {
    add(R"(<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>)", x, y, classes, trireme::escape_xml(text));
  }

  /// `tip` shows when the mouse is over it.
  void bar(double x, double y, double width, double height, std::string_view classes, std::string_view tip) {
    add(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" rx="1.5" class="{}"><title>{}</title></rect>)", x,
        y, width, height, classes, trireme::escape_xml(tip));
  }

  std::string finish(double width, double height, std::string_view label) const {
    return fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)"
                       "\n{}</svg>\n",
                       width, height, trireme::escape_xml(label), body_);
  }

 private:
  std::string body_;
};

/// About so many round numbers between the two.
inline std::vector<double> ticks(double least, double most, int about) {
  const double rough = (most - least) / about;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5, 2, 1}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> found;
  for (double number = std::ceil(least / step); number * step <= most; ++number) found.push_back(number * step);
  return found;
}

}  // namespace makemore
