// SVG for the drawings: a page of shapes and text, and colours that everyone can tell apart on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double left, top, right, bottom;

  static Box around(Point centre, double width, double height) {
    return {centre.x - width / 2, centre.y - height / 2, centre.x + width / 2, centre.y + height / 2};
  }
  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

/// How wide a sans-serif font sets the text, more or less: a viewer may have another font.
double text_width(std::string_view text, double font_size);

/// "1 rank", "8 ranks".
std::string counted(int count, std::string_view what);

/// Lines of whole words that are no wider than `width`, unless one word is.
std::vector<std::string> wrap(std::string_view text, double width, double font_size);

/// One of kColours colours that keep apart for the colour-blind too, and are dark enough for lines on white.
std::string_view colour(int index);
inline constexpr int kColours = 8;

/// A colour from dark blue (0) by red to orange (1), evenly darker to lighter.
std::string ramp_colour(double part);

inline constexpr double kMargin = 24;  ///< of a page

/// Shapes in the order they are painted. Attributes are as SVG has them: `stroke="#333" class="add"`.
class SvgPage {
 public:
  void open_group(std::string_view attributes);
  void close_group();

  void tooltip(std::string_view text);  ///< of the group just opened
  void line(Point from, Point to, std::string_view attributes);
  void path(std::string_view data, std::string_view attributes);
  void rect(const Box& box, std::string_view attributes);
  void circle(Point centre, double radius, std::string_view attributes);
  void text(Point at, std::string_view text, std::string_view attributes = "");

  /// The page's title, in large letters at its top left, where it needs title_width().
  void title(std::string_view text);
  static double title_width(std::string_view text);

  /// Wraps the text into a paragraph of small print, and returns where the next one may start.
  double paragraph(Point at, double width, std::string_view text);

  /// The whole page.
  std::string finish(double width, double height) const;

 private:
  std::string title_;
  std::string body_;
};

}  // namespace trireme
