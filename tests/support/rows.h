// The registry's rows as parameters of tests, and the settings that are worth trying.
#pragma once

#include "support/graphs.h"
#include "support/random.h"
#include "trireme/algorithms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace trireme::test {

/// A test of this kind runs once for each row of the registry.
class EveryRow : public ::testing::TestWithParam<const Algorithm*> {
 protected:
  static const Algorithm& row() { return *GetParam(); }
};

inline std::vector<const Algorithm*> every_row() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : algorithms()) rows.push_back(&row);
  return rows;
}

/// What a row's tests are called: "ring", "broadcast_tree".
inline std::string test_name(const ::testing::TestParamInfo<const Algorithm*>& info) {
  std::string name = full_name(*info.param);
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

inline std::string describe(const Setting& s) {
  return fmt::format("ranks {}, root {}, segments {}, ranks per host {}, rows {}, servers {}, {} trees", s.ranks,
                     s.root, s.segments, s.ranks_per_host, s.rows, s.servers, s.trees ? s.trees->trees.size() : 0);
}

/// Each setting so far with each of the values; a value that comes twice counts once.
template <typename Value>
void vary(std::vector<Setting>& settings, Value Setting::*field, const std::vector<Value>& values) {
  std::vector<Setting> varied;
  for (const Setting& setting : settings) {
    for (auto value = values.begin(); value != values.end(); ++value) {
      if (std::find(values.begin(), value, *value) != value) continue;
      varied.push_back(setting);
      varied.back().*field = *value;
    }
  }
  settings = std::move(varied);
}

/// The settings of a row for this many ranks that differ in what the row reads; none if it does not take so many.
inline std::vector<Setting> settings_of(const Algorithm& row, int ranks) {
  if (!row.accepts(ranks)) return {};
  std::vector<Setting> settings{{.ranks = ranks}};
  const auto is = [&](Collective collective) { return row.collective == collective; };
  if (is(Collective::broadcast) || is(Collective::reduce) || is(Collective::gather) || is(Collective::scatter)) {
    vary(settings, &Setting::root, {0, std::min(1, ranks - 1), ranks - 1});
  }
  if (row.segmented) vary(settings, &Setting::segments, {1, 2, 5});
  if (row.served) vary(settings, &Setting::servers, {0, 1, std::min(2, ranks), ranks});
  if (row.name == "hierarchical_ring") vary(settings, &Setting::ranks_per_host, {0, 1, 2, 3, ranks, ranks + 1});
  if (row.name == "torus") {
    std::vector<int> divisors{0};
    for (int divisor = 1; divisor <= ranks; ++divisor) {
      if (ranks % divisor == 0) divisors.push_back(divisor);
    }
    vary(settings, &Setting::rows, divisors);
  }
  if (row.name == "blink") {
    Random random(mix(5, ranks));
    std::vector<std::shared_ptr<const TreePacking>> packings{nullptr};
    for (const int sparsity : {1, 2, ranks + 1, 4 * ranks}) {
      packings.push_back(std::make_shared<TreePacking>(pack_trees(random_graph(random, ranks, sparsity))));
    }
    packings.push_back(std::make_shared<TreePacking>(pack_trees(switch_graph(std::vector<double>(ranks, 1)))));
    vary(settings, &Setting::trees, packings);
  }
  return settings;
}

}  // namespace trireme::test
