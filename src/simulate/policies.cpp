// The fixed rules of other libraries for allreduce, as tables. Elements are taken to be float32 and addition to
// commute.
#include "trireme/choose.h"

#include <array>
#include <limits>

namespace trireme {
namespace {

constexpr std::uint64_t kElement = 4;
constexpr std::uint64_t kKi = 1024;
constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

enum class Method { recursive_doubling, ring, rabenseifner, reduce_and_broadcast };

struct Rule {
  std::uint64_t below;  // bytes
  Method method;
};

struct Row {
  int most_ranks;
  std::array<Rule, 7> rules;
};

constexpr Method kRecursive = Method::recursive_doubling;
constexpr Method kRing = Method::ring;
constexpr Method kRabenseifner = Method::rabenseifner;
constexpr Method kLinear = Method::reduce_and_broadcast;
constexpr Rule kElse{kNoLimit, kRabenseifner};

// Open MPI 4.1, coll_tuned_decision_fixed.c. Its segmented ring runs with a segment size of 0, which makes it the ring.
constexpr std::array<Row, 11> kOpenMpi{{
    {3, {{{8, kRing}, {4 * kKi, kRecursive}, {8 * kKi, kRing}, {16 * kKi, kRecursive}, {256 * kKi, kRing}, kElse}}},
    {7, {{{16, kRing}, {8 * kKi, kRecursive}, kElse}}},
    {15, {{{8 * kKi, kRecursive}, kElse}}},
    {31, {{{64, kRing}, {4 * kKi, kRecursive}, kElse}}},
    {63, {{{128, kRing}, kElse}}},
    {127, {{{256 * kKi, kRecursive}, kElse}}},
    {255, {{{128 * kKi, kLinear}, {256 * kKi, kRecursive}, kElse}}},
    {511, {{{4 * kKi, kLinear}, kElse}}},
    {2047, {{{2 * kKi, kLinear}, {16 * kKi, kRecursive}, kElse}}},
    {4095, {{{2 * kKi, kLinear}, {4 * kKi, kRing}, {16 * kKi, kRecursive}, kElse}}},
    {std::numeric_limits<int>::max(), {{{2 * kKi, kLinear}, {16 * kKi, kRing}, {32 * kKi, kRecursive}, kElse}}},
}};

std::string_view name_of(Method method) {
  switch (method) {
    case Method::recursive_doubling: return "recursive_doubling";
    case Method::ring: return "ring";
    case Method::rabenseifner: return "halving_doubling";
    case Method::reduce_and_broadcast: return "tree";
  }
  return {};
}

std::string_view open_mpi(int ranks, std::uint64_t bytes) {
  for (const Row& row : kOpenMpi) {
    if (ranks > row.most_ranks) continue;
    for (const Rule& rule : row.rules) {
      if (bytes >= rule.below && rule.below != kNoLimit) continue;
      const bool too_short = rule.method == kRing && bytes / kElement < static_cast<std::uint64_t>(ranks);
      return name_of(too_short ? kRecursive : rule.method);
    }
  }
  return name_of(kRabenseifner);
}

std::string_view mpich(int ranks, std::uint64_t bytes) {
  std::uint64_t power_of_two = 1;
  while (2 * power_of_two <= static_cast<std::uint64_t>(ranks)) power_of_two *= 2;
  const bool short_message = bytes <= 8 || bytes / kElement < power_of_two;
  return name_of(short_message ? kRecursive : kRabenseifner);
}

}  // namespace

const std::vector<Policy>& policies() {
  static const std::vector<Policy> kPolicies{
      {"openmpi", "Open MPI 4.1 (coll/tuned)", open_mpi},
      {"mpich", "MPICH 4.0 (blocking)", mpich},
  };
  return kPolicies;
}

}  // namespace trireme
