// The simulator against the closed formulas of the literature, on one uncontended switch.
#include "support/random.h"
#include "trireme/algorithms.h"
#include "trireme/simulate.h"
#include "trireme/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace trireme {
namespace {

struct Costs {
  double alpha;
  double beta;   // seconds a byte
  double gamma;  // seconds to add a byte
  double bytes;
};

const std::vector<Costs> kCosts{{20e-6, 1 / 1.25e9, 1 / 8e9, 1 << 20},
                                {20e-6, 1 / 1.25e9, 1 / 8e9, 1 << 10},
                                {1e-6, 1 / 12.5e9, 1 / 2e9, 64 << 20},
                                {0, 1 / 1e9, 1 / 1e9, 3 << 20},
                                {50e-6, 1 / 1e8, 1 / 1e11, 1 << 18}};

double simulated(const std::string& name, const Setting& setting, const Costs& costs) {
  const Algorithm& algorithm = find_algorithm(name);
  const auto network = make_switch(total_ranks(algorithm, setting), {Seconds(costs.alpha), 1 / costs.beta});
  return simulate(algorithm, setting, *network,
                  {.bytes = static_cast<std::uint64_t>(costs.bytes), .reduce_rate = 1 / costs.gamma})
      .time.count();
}

// Rounds of alpha, then what moving and adding 2(P-1)/P and (P-1)/P of the buffer takes.
double by_shares(double rounds, int p, const Costs& c) {
  const double share = static_cast<double>(p - 1) / p;
  return rounds * c.alpha + 2 * share * c.bytes * c.beta + share * c.bytes * c.gamma;
}

double tree_formula(double lg, const Costs& c) {
  return 2 * lg * (c.alpha + c.bytes * c.beta) + lg * c.bytes * c.gamma;
}

int torus_rounds(int rows, int columns) { return 2 * (rows - 1) + 2 * (columns - 1); }

TEST(Formulas, AgreeWhereNothingOverlaps) {
  for (const Costs& c : kCosts) {
    for (int lg = 1; lg <= 7; ++lg) {
      const int p = 1 << lg;
      SCOPED_TRACE(p);
      const Setting setting{.ranks = p};
      const auto expect = [&](const std::string& name, double formula) {
        const double time = simulated(name, setting, c);
        EXPECT_NEAR(time / formula, 1, 0.01) << name << ", " << c.bytes << " bytes";
      };
      expect("ring", by_shares(2 * (p - 1), p, c));
      expect("tree", tree_formula(lg, c));
      expect("recursive_doubling", lg * (c.alpha + c.bytes * (c.beta + c.gamma)));
      expect("halving_doubling", by_shares(2 * lg, p, c));
      expect("swing", by_shares(2 * lg, p, c));
    }
    for (const int p : {3, 5, 7, 12, 33}) {
      EXPECT_NEAR(simulated("ring", {.ranks = p}, c) / by_shares(2 * (p - 1), p, c), 1, 0.01) << p;
    }
  }
}

TEST(Formulas, NeverSlowerElsewhere) {
  constexpr double kRounding = 1 + 1e-3;  // uneven blocks: a byte more here and there
  constexpr int kMost = test::kEffort == 1 ? 20 : 40;
  for (const Costs& c : kCosts) {
    for (int p = 2; p <= kMost; ++p) {
      SCOPED_TRACE(p);
      const double lg = std::ceil(std::log2(p));
      const auto expect = [&](const std::string& name, double formula, const Setting& setting) {
        EXPECT_LE(simulated(name, setting, c), formula * kRounding) << name << ", " << c.bytes << " bytes";
      };
      const double whole = c.bytes * c.beta;
      const double adding = (p - 1) * c.bytes * c.gamma;
      expect("parameter_server", 2 * (p - 1) * (c.alpha + whole) + adding, {.ranks = p});
      expect("fully_connected", c.alpha + (p - 1) * whole + adding, {.ranks = p});
      expect("butterfly", by_shares(2, p, c), {.ranks = p});
      expect("blink", by_shares(2, p, c), {.ranks = p});
      expect("tree", tree_formula(lg, c), {.ranks = p});
      // No power of two: two rounds and two buffers more, as MPICH does it.
      const bool power_of_two = std::exp2(lg) == p;
      expect("halving_doubling", by_shares(2 * lg, p, c) + (power_of_two ? 0 : 2 * whole), {.ranks = p});
      for (const int segments : {1, 2, 7}) {
        expect("segmented_ring", by_shares(2 * (p - 1), p, c), {.ranks = p, .segments = segments});
        // Two trees of segments of n/2S bytes, up and then down. In a beat a rank exchanges one segment; a level takes
        // two beats, since a rank has two children; and a segment takes four, two for each tree.
        const double beat = c.alpha + c.bytes / (2 * segments) * (c.beta + c.gamma);
        expect("double_binary_tree", (4 * lg + 4 * segments) * beat, {.ranks = p, .segments = segments});
      }
      for (int rows = 1; rows <= p; ++rows) {
        if (p % rows == 0) expect("torus", by_shares(torus_rounds(rows, p / rows), p, c), {.ranks = p, .rows = rows});
      }
    }
  }
}

TEST(Formulas, BytePsComesNearItsLimitAndNeverBelow) {
  const Costs c{.alpha = 0, .beta = 1e-9, .gamma = 1e-15, .bytes = 1 << 24};
  for (const int p : {2, 4, 7, 8}) {
    for (const int servers : {0, 1, p / 2, p}) {
      const double d = p * p + servers * p - 2 * servers;
      const double limit = 2.0 * p * (p - 1) * c.bytes / d * c.beta;
      const double time = simulated("byteps", {.ranks = p, .segments = 64, .servers = servers}, c);
      EXPECT_GE(time, limit * 0.999) << p << " ranks, " << servers << " servers";
      EXPECT_LE(time, limit * 1.35) << p << " ranks, " << servers << " servers";
    }
  }
}

TEST(Formulas, LatencyAloneCountsTheRoundsThatTheVerifierFinds) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 33}) {
      if (!algorithm.accepts(ranks)) continue;
      const Setting setting{.ranks = ranks};
      const auto network = make_switch(total_ranks(algorithm, setting), {Seconds(1), 1e9});
      const Simulated result = simulate(algorithm, setting, *network, {.bytes = 0});
      EXPECT_EQ(result.time.count(), verify(make_schedule(algorithm, setting)).rounds)
          << full_name(algorithm) << " " << ranks;
    }
  }
}

}  // namespace
}  // namespace trireme
