#include "trireme/names.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme {
namespace {

// Optimal string alignment distance: a swap of neighbours counts as one edit.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  std::size_t fewest = name.size() / 2 + 1;
  for (const std::string& candidate : candidates) {
    // Too far off whatever its letters, and the table of a very long name would be huge.
    if (name.size() > candidate.size() + fewest) continue;
    // What a name begins with is the likeliest thing to be remembered of it.
    const bool begins = name.size() >= 3 && candidate.starts_with(name);
    const std::size_t distance = begins ? 1 : edits(name, candidate);
    if (distance < fewest || (distance == fewest && best.empty())) {
      fewest = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace trireme
