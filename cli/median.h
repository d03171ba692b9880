// The value in the middle, which a few disturbed measurements do not move.
#pragma once

#include <algorithm>
#include <vector>

namespace trireme::cli {

/// Of one value or more; between the two in the middle, if there are two.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace trireme::cli
