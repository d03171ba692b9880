// Places for labels, so that they keep out of each other's way.
#pragma once

#include "simulate/arrows.h"

#include <optional>
#include <span>
#include <vector>

namespace trireme {

/// Heights for labels that would like to be at `wished` (in any order): the nearest ones, in the same order down the
/// page, that are at least `gap` apart and from `top` to `bottom`.
std::vector<double> spread(std::span<const double> wished, double gap, double top, double bottom);

/// Where on its arrow each label goes, so that none covers another and few cover an arrow that is not theirs; none
/// where there is no room. Labels are `widths` wide; arrows after the last width have none, and just want to be seen.
std::vector<std::optional<Point>> place_on_arrows(std::span<const Arrow> arrows, std::span<const double> widths,
                                                  double height);

}  // namespace trireme
