#include "simulate/tape.h"

#include <algorithm>

namespace trireme {
namespace {

constexpr int kLongest = 64;      // steps in a loop
constexpr int kFewestPasses = 3;  // fewer save nothing: two passes always fit

bool same_shape(const Step& a, const Step& b) { return a.action == b.action && a.run.count == b.run.count; }

// How often the `length` steps from `first` on repeat themselves with steady moves, the first time included.
int passes_of(const std::vector<Step>& steps, int first, int length) {
  const int end = static_cast<int>(steps.size());
  int at = first + length;
  for (; at < end; ++at) {
    const Step& before = steps[at - length];
    if (!same_shape(steps[at], before)) break;
    if (at < first + 2 * length) continue;
    const Step& twice_before = steps[at - 2 * length];
    const bool steady = steps[at].peer - before.peer == before.peer - twice_before.peer &&
                        steps[at].run.first - before.run.first == before.run.first - twice_before.run.first;
    if (!steady) break;
  }
  return (at - first) / length;
}

}  // namespace

Tape::Tape(const std::vector<Step>& steps) {
  const int end = static_cast<int>(steps.size());
  bool open = false;  // the last loop is a plain stretch that may grow
  for (int at = 0; at < end;) {
    int length = 1;
    int passes = passes_of(steps, at, length);
    while (passes < kFewestPasses && length < std::min(kLongest, (end - at) / kFewestPasses)) {
      passes = passes_of(steps, at, ++length);
    }
    if (passes < kFewestPasses) {
      length = passes = 1;
      if (open) ++loops_.back().length;
    }
    const bool plain = passes == 1;
    if (!plain || !open) loops_.push_back({static_cast<int>(body_.size()), length, passes});
    open = plain;
    for (int i = at; i < at + length; ++i) {
      const Step& later = steps[plain ? i : i + length];
      body_.push_back({steps[i], later.run.first - steps[i].run.first, later.peer - steps[i].peer});
    }
    at += length * passes;
  }
  body_.shrink_to_fit();
  loops_.shrink_to_fit();
}

}  // namespace trireme
