// What colours and marks mean in a drawing of a schedule.
#pragma once

#include "simulate/svg.h"
#include "trireme/program.h"

#include <string>

namespace trireme {

/// Few blocks have a colour each, and a run that of its first one; many have a ramp, and a run the colour of its
/// middle.
class BlockColours {
 public:
  explicit BlockColours(int blocks) : blocks_(blocks) {}

  bool few() const { return blocks_ <= kColours; }
  std::string of(Run run) const;

 private:
  int blocks_;
};

/// Below the title.
void draw_legend(SvgPage& page, int blocks);

/// Where it ends.
double legend_bottom(int blocks);

}  // namespace trireme
