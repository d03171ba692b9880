// Drawings, as SVG.
#pragma once

#include "trireme/choose.h"
#include "trireme/program.h"
#include "trireme/simulate.h"

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// A schedule as it went on a network: ranks across, time downward, an arrow a message, coloured by block, adds told
/// from receives. `caption` says on which network and with how many bytes.
std::string draw_schedule(const Schedule& schedule, const std::vector<Delivery>& deliveries,
                          const std::string& caption);

/// Time against bytes, both logarithmic, a line an algorithm with its name beside it, and a band that says who wins
/// where.
std::string draw_race(const Race& race, const std::string& caption);

/// The text as XML and HTML may hold it: for a page around a drawing.
std::string escape_xml(std::string_view text);

}  // namespace trireme
