#include "simulate/svg.h"

#include "trireme/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace trireme {
namespace {

template <typename... Values>
void append(std::string& body, fmt::format_string<Values...> format, Values&&... values) {
  fmt::format_to(std::back_inserter(body), format, std::forward<Values>(values)...);
}

constexpr std::string_view kStyle =
    "text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#333}"
    ".title{font-size:18px;font-weight:bold;fill:#111}"
    ".small{font-size:11px;fill:#555}";
constexpr double kSmall = 11;

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    switch (letter) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      // XML has no way to write other control characters.
      default: escaped += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
    }
  }
  return escaped;
}

double text_width(std::string_view text, double font_size) {
  constexpr double kLetter = 0.6;
  const auto letters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });  // of UTF-8
  return kLetter * font_size * static_cast<double>(letters);
}

std::string counted(int count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::vector<std::string> wrap(std::string_view text, double width, double font_size) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    if (word.empty()) continue;
    if (!lines.empty() && text_width(lines.back(), font_size) + text_width(word, font_size) + font_size < width) {
      append(lines.back(), " {}", word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

std::string_view colour(int index) {
  // Okabe and Ito's, but for their yellow and black.
  constexpr std::array<std::string_view, kColours> kPalette{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                            "#e69f00", "#56b4e9", "#332288", "#7f7f7f"};
  return kPalette[index % kColours];
}

std::string ramp_colour(double part) {
  // Matplotlib's plasma up to where it gets too light for lines on white.
  struct Rgb {
    double red, green, blue;
  };
  constexpr std::array<Rgb, 5> kStops{{{13, 8, 135}, {106, 0, 168}, {177, 42, 144}, {225, 100, 98}, {248, 149, 64}}};
  const double place = std::clamp(part, 0.0, 1.0) * (kStops.size() - 1);
  const std::size_t stop = std::min(static_cast<std::size_t>(place), kStops.size() - 2);
  const auto mix = [&](double Rgb::*channel) {
    return static_cast<int>(
        std::lerp(kStops[stop].*channel, kStops[stop + 1].*channel, place - static_cast<double>(stop)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(&Rgb::red), mix(&Rgb::green), mix(&Rgb::blue));
}

void SvgPage::open_group(std::string_view attributes) { append(body_, "<g {}>\n", attributes); }

void SvgPage::close_group() { body_ += "</g>\n"; }

void SvgPage::tooltip(std::string_view text) { append(body_, "<title>{}</title>\n", escape_xml(text)); }

void SvgPage::line(Point from, Point to, std::string_view attributes) {
  append(body_, R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" {}/>)", from.x, from.y, to.x, to.y,
         attributes);
  body_ += '\n';
}

void SvgPage::path(std::string_view data, std::string_view attributes) {
  append(body_, "<path d=\"{}\" {}/>\n", data, attributes);
}

void SvgPage::rect(const Box& box, std::string_view attributes) {
  append(body_, R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" {}/>)", box.left, box.top,
         box.right - box.left, box.bottom - box.top, attributes);
  body_ += '\n';
}

void SvgPage::circle(Point centre, double radius, std::string_view attributes) {
  append(body_, R"(<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" {}/>)", centre.x, centre.y, radius, attributes);
  body_ += '\n';
}

void SvgPage::text(Point at, std::string_view text, std::string_view attributes) {
  append(body_, R"(<text x="{:.1f}" y="{:.1f}" {}>{}</text>)", at.x, at.y, attributes, escape_xml(text));
  body_ += '\n';
}

void SvgPage::title(std::string_view text) {
  title_ = text;
  this->text({kMargin, 32}, text, R"(class="title")");
}

double SvgPage::title_width(std::string_view text) {
  constexpr double kSize = 18, kBold = 1.1;
  return kBold * text_width(text, kSize) + 2 * kMargin;
}

double SvgPage::paragraph(Point at, double width, std::string_view text) {
  constexpr double kLine = 15;
  for (const std::string& line : wrap(text, width, kSmall)) {
    this->text(at, line, R"(class="small")");
    at.y += kLine;
  }
  return at.y;
}

std::string SvgPage::finish(double width, double height) const {
  return fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" )"
                     R"(viewBox="0 0 {0:.0f} {1:.0f}" role="img" aria-label="{2}">)"
                     "\n<style>{3}</style>\n"
                     R"(<rect x="0" y="0" width="{0:.0f}" height="{1:.0f}" fill="#fff"/>)"
                     "\n{4}</svg>\n",
                     width, height, escape_xml(title_), kStyle, body_);
}

}  // namespace trireme
