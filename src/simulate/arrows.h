// The marks of messages in a drawing of a schedule: arrows between ranks, and bars where a message ends.
#pragma once

#include "simulate/svg.h"

#include <span>
#include <string_view>

namespace trireme {

/// A line from one point to another, bent towards a third.
struct Arrow {
  Arrow(Point begin, Point end) : from(begin), bend{(begin.x + end.x) / 2, (begin.y + end.y) / 2}, to(end) {}

  Point at(double part) const;

  Point from, bend, to;
};

/// Bends arrows that would hide behind another between the same two ranks.
void bend_apart(std::span<Arrow> arrows);

/// How an arrow ends: for adds in a filled circle with a plus in it, which is round its end, else in an open head.
/// Lines are solid or dashed. The weight, from 0 to 1, is of all that.
void draw_arrow(SvgPage& page, const Arrow& arrow, bool adds, std::string_view colour, double weight);

/// The radius of the circle with the plus.
double plus_radius(double weight);

/// What a message does once it has arrived. A wide bar or a narrow one.
enum class BarOf { adding, waiting };

void draw_bar(SvgPage& page, double middle, double top, double bottom, std::string_view colour, BarOf what);

inline constexpr double kBar = 5;  ///< width of the wide one

}  // namespace trireme
