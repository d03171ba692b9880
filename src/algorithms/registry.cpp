// The registry: one table, a row an algorithm. A claim is written for people and, beside it, for the verifier.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"
#include "trireme/algorithms.h"
#include "trireme/error.h"
#include "trireme/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

namespace trireme {
namespace {

using S = const Setting&;

bool powers_of_two(int ranks) { return is_power_of_two(ranks); }

int rows_of(S s) { return s.rows > 0 ? s.rows : squarest_divisor(s.ranks); }

int ranks_per_host_of(S s) {
  const int each = s.ranks_per_host > 0 ? s.ranks_per_host : static_cast<int>(std::lround(std::sqrt(s.ranks)));
  return std::min(each, s.ranks);
}

// The claims that several rows share. One rank needs no message, whatever the formula says.
double one(S s) { return s.ranks > 1 ? 1 : 0; }
double two(S s) { return s.ranks > 1 ? 2 : 0; }
double all_others(S s) { return s.ranks - 1; }
double twice_all_others(S s) { return 2 * (s.ranks - 1); }
double lg_floor(S s) { return floor_log2(s.ranks); }
double lg_ceil(S s) { return ceil_log2(s.ranks); }
double twice_lg_floor(S s) { return 2 * floor_log2(s.ranks); }
// Halving takes ceil(lg P) exchanges, but when P is little more than a power of two no block takes part in all of them.
double halvings(S s) { return ceil_log2((2 * s.ranks + 2) / 3); }
double halvings_and_one(S s) { return halvings(s) + one(s); }
double twice_halvings(S s) { return 2 * halvings(s); }
double other_shares(S s) { return static_cast<double>(s.ranks - 1) / s.ranks; }
double twice_other_shares(S s) { return 2 * other_shares(s); }

constexpr Claim kTwo{"2", two};
constexpr Claim kOne{"1", one};
constexpr Claim kAllOthers{"P-1", all_others};
constexpr Claim kTwiceAllOthers{"2(P-1)", twice_all_others};
constexpr Claim kLgFloor{"floor(lg P)", lg_floor};
constexpr Claim kLgCeil{"ceil(lg P)", lg_ceil};
constexpr Claim kTwiceLgFloor{"2 floor(lg P)", twice_lg_floor};
constexpr Claim kHalvings{"ceil(lg 2P/3)", halvings};
constexpr Claim kHalvingsAndOne{"ceil(lg 2P/3)+1", halvings_and_one};
constexpr Claim kTwiceHalvings{"2 ceil(lg 2P/3)", twice_halvings};
constexpr Claim kOtherShares{"(P-1)/P", other_shares};
constexpr Claim kTwiceOtherShares{"2(P-1)/P", twice_other_shares};

// Of the two extra rounds, one hides behind the exchanges of ranks without a guest while these are at least as many.
double recursive_doubling_rounds(S s) {
  const int core = floor_power_of_two(s.ranks);
  const int guests = s.ranks - core;
  if (guests == 0) return floor_log2(s.ranks);
  return floor_log2(s.ranks) + (guests <= core / 2 ? 1 : 2);
}
double recursive_doubling_sent(S s) { return floor_log2(s.ranks) + (is_power_of_two(s.ranks) ? 0 : 1); }
double chain_sent(S s) { return std::min(s.ranks - 1, 2); }

double double_binary_tree_sent(S s) {
  constexpr double kSmall[] = {0, 0, 1, 1.5, 1.5};
  return s.ranks < 5 ? kSmall[s.ranks] : 2;
}

struct Hosts {
  explicit Hosts(S s) : each(ranks_per_host_of(s)), count((s.ranks + each - 1) / each) {}
  int each;
  int count;
};

double hierarchical_rounds(S s) {
  const Hosts hosts(s);
  return 2 * (hosts.each - 1) + 2 * (hosts.count - 1);
}

double hierarchical_sent(S s) {
  const Hosts hosts(s);
  const double leader = (hosts.each > 1 ? 1 : 0) + 2.0 * (hosts.count - 1) / hosts.count;
  return std::max(leader, hosts.each > 2 ? 2.0 : 0.0);
}

double torus_rounds(S s) {
  const int columns = s.ranks / rows_of(s);
  return 2 * (rows_of(s) - 1) + 2 * (columns - 1);
}

double byteps_sent(S s) {
  if (s.ranks == 1) return 0;
  const double p = s.ranks;
  return 2 * p * (p - 1) / (p * p + s.servers * p - 2 * s.servers);
}

double blink_rounds(S s) {
  if (!s.trees) return two(s);
  int highest = 0;
  for (const PackedTree& tree : s.trees->trees) highest = std::max(highest, tree.height());
  return 2 * highest;
}

double blink_sent(S s) {
  if (!s.trees) return twice_other_shares(s);
  // A rank sends a tree's blocks to its parent and to each of its children: to all its neighbours.
  std::vector<int> blocks(s.ranks);
  for (const PackedTree& tree : s.trees->trees) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      if (tree.parent[rank] < 0) continue;
      blocks[rank] += tree.blocks;
      blocks[tree.parent[rank]] += tree.blocks;
    }
  }
  return static_cast<double>(*std::max_element(blocks.begin(), blocks.end())) / s.trees->blocks;
}

double tree_gather_sent(S s) {
  int largest = 0;
  for (int bit = 1; bit < s.ranks; bit *= 2) largest = std::max(largest, std::min(bit, s.ranks - bit));
  return static_cast<double>(largest) / s.ranks;
}

double factored_rounds(S s) { return static_cast<double>(prime_factors(s.ranks).size()); }

double factored_sent(S s) {
  double sent = 0;
  for (const int factor : prime_factors(s.ranks)) sent += (factor - 1.0) / factor;
  return sent;
}

constexpr std::string_view kThakur = "Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005";
constexpr std::string_view kPatarasuk = "Patarasuk, Yuan, JPDC 69(2), 2009";
constexpr std::string_view kTraff = "Traff, arXiv:2410.14234, 2024";
constexpr std::string_view kBruck = "Bruck et al., IEEE TPDS 8(11), 1997";

// clang-format off
const Algorithm kAlgorithms[] = {
    {.name = "parameter_server", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return parameter_server(rank, s.ranks); },
     .rounds = kTwo, .sent = kAllOthers,
     .description = "one rank adds up what all send, and sends all the sum",
     .reference = "Li et al., OSDI 2014"},
    {.name = "fully_connected", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return fully_connected(rank, s.ranks); },
     .rounds = kOne, .sent = kAllOthers,
     .description = "all send everything to all, each adds up for itself",
     .reference = kThakur,
     .same_bits = false},
    {.name = "chain", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return chain(rank, s.ranks, s.segments); },
     .rounds = kTwiceAllOthers, .sent = {"2", chain_sent},
     .description = "segments are summed along a line of ranks, and the sum comes back along it",
     .reference = "Pjesivac-Grbovic et al., Cluster Computing 10(2), 2007",
     .segmented = true},
    {.name = "tree", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return tree(rank, s.ranks); },
     .rounds = kTwiceLgFloor, .sent = kLgCeil,
     .description = "a binomial tree reduces to its root and broadcasts from it",
     .reference = kThakur},
    {.name = "recursive_doubling", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return recursive_doubling(rank, s.ranks); },
     .rounds = {"floor(lg P), +1 or +2 unless 2^k", recursive_doubling_rounds},
     .sent = {"floor(lg P), +1 unless 2^k", recursive_doubling_sent},
     .description = "pairs at distance 1, 2, 4, ... exchange everything and add",
     .reference = kThakur},
    {.name = "halving_doubling", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return halving_doubling(rank, s.ranks); },
     .rounds = kTwiceHalvings, .sent = kTwiceOtherShares,
     .description = "the buffer is halved with peer after peer, then doubled back",
     .reference = "Rabenseifner, ICCS 2004; any P: Traff, arXiv:2410.14234, 2024"},
    {.name = "butterfly", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return butterfly(rank, s.ranks); },
     .rounds = kTwo, .sent = kTwiceOtherShares,
     .description = "each rank adds up one block of all ranks and sends it to all",
     .reference = kThakur},
    {.name = "ring", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return ring(rank, s.ranks); },
     .rounds = kTwiceAllOthers, .sent = kTwiceOtherShares,
     .description = "partial sums travel once round a ring, finished blocks once more",
     .reference = kPatarasuk},
    {.name = "segmented_ring", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return segmented_ring(rank, s.ranks, s.segments); },
     .rounds = kTwiceAllOthers, .sent = kTwiceOtherShares,
     .description = "the ring, adding one segment of a block while the next is on its way",
     .reference = kPatarasuk,
     .segmented = true},
    {.name = "double_binary_tree", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return double_binary_tree(rank, s.ranks, s.segments); },
     .rounds = kTwiceLgFloor, .sent = {"2", double_binary_tree_sent},
     .description = "two trees for half of the buffer each; no rank is inside both",
     .reference = "Sanders, Speck, Traff, Parallel Computing 35(12), 2009",
     .segmented = true},
    {.name = "hierarchical_ring", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return hierarchical_ring(rank, s.ranks, ranks_per_host_of(s), s.segments); },
     .rounds = {"2(G-1)+2(H-1)", hierarchical_rounds},
     .sent = {"1+2(H-1)/H", hierarchical_sent},
     .description = "each host's G ranks reduce to a leader; the H leaders form a ring",
     .reference = "Jia et al., arXiv:1807.11205, 2018",
     .segmented = true},
    {.name = "torus", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return torus(rank, s.ranks, rows_of(s)); },
     .rounds = {"2(C-1)+2(R-1)", torus_rounds}, .sent = kTwiceOtherShares,
     .description = "rings along the C columns of a row, then along its R rows",
     .reference = "Mikami et al., arXiv:1811.05233, 2018"},
    {.name = "byteps", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return byteps(rank, s.ranks, s.servers, s.segments); },
     .rounds = kTwo, .sent = {"2P(P-1)/(P^2+kP-2k)", byteps_sent},
     .description = "k extra ranks serve beside the workers, all links equally busy",
     .reference = "Jiang et al., OSDI 2020",
     .segmented = true, .served = true},
    {.name = "blink", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return blink(rank, s.ranks, s.trees.get(), s.segments); },
     .rounds = {"2 height", blink_rounds}, .sent = {"by packing", blink_sent},
     .description = "spanning trees packed into links that differ in bandwidth",
     .reference = "Wang et al., MLSys 2020",
     .segmented = true},
    {.name = "swing", .collective = Collective::allreduce,
     .program = [](int rank, S s) { return swing(rank, s.ranks); },
     .rounds = kTwiceLgFloor, .sent = kTwiceOtherShares,
     .description = "halving and doubling with peers at +1, -1, +3, -5, ...",
     .reference = "De Sensi et al., NSDI 2024",
     .takes = "powers of two", .accepts = powers_of_two},

    {.name = "ring", .collective = Collective::reduce_scatter,
     .program = [](int rank, S s) { return ring_reduce_scatter(rank, s.ranks); },
     .rounds = kAllOthers, .sent = kOtherShares,
     .description = "partial sums travel once round a ring",
     .reference = kPatarasuk},
    {.name = "bruck", .collective = Collective::reduce_scatter,
     .program = [](int rank, S s) { return bruck_reduce_scatter(rank, s.ranks); },
     .rounds = kHalvings, .sent = kOtherShares,
     .description = "the blocks in hand are halved round after round, for any P",
     .reference = kTraff},
    {.name = "direct", .collective = Collective::reduce_scatter,
     .program = [](int rank, S s) { return direct_reduce_scatter(rank, s.ranks); },
     .rounds = kOne, .sent = kOtherShares,
     .description = "each block goes straight to the rank that adds it up",
     .reference = kThakur},

    {.name = "ring", .collective = Collective::allgather,
     .program = [](int rank, S s) { return ring_allgather(rank, s.ranks); },
     .rounds = kAllOthers, .sent = kOtherShares,
     .description = "blocks travel once round a ring",
     .reference = kThakur},
    {.name = "bruck", .collective = Collective::allgather,
     .program = [](int rank, S s) { return bruck_allgather(rank, s.ranks); },
     .rounds = kHalvings, .sent = kOtherShares,
     .description = "the blocks in hand are doubled round after round, for any P",
     .reference = kBruck},
    {.name = "direct", .collective = Collective::allgather,
     .program = [](int rank, S s) { return direct_allgather(rank, s.ranks); },
     .rounds = kOne, .sent = kOtherShares,
     .description = "each rank sends its block straight to all",
     .reference = kThakur},

    {.name = "tree", .collective = Collective::broadcast,
     .program = [](int rank, S s) { return tree_broadcast(rank, s.ranks, s.root); },
     .rounds = kLgFloor, .sent = kLgCeil,
     .description = "down a binomial tree",
     .reference = kThakur},
    {.name = "scatter_allgather", .collective = Collective::broadcast,
     .program = [](int rank, S s) { return scatter_allgather_broadcast(rank, s.ranks, s.root); },
     .rounds = kHalvingsAndOne, .sent = kTwiceOtherShares,
     .description = "the root deals out one block a rank, then all gather",
     .reference = "van de Geijn, JPDC 22(2), 1994"},
    {.name = "chain", .collective = Collective::broadcast,
     .program = [](int rank, S s) { return chain_broadcast(rank, s.ranks, s.root, s.segments); },
     .rounds = kAllOthers, .sent = kOne,
     .description = "segments follow each other along a line of ranks",
     .reference = "Pjesivac-Grbovic et al., Cluster Computing 10(2), 2007",
     .segmented = true},

    {.name = "tree", .collective = Collective::reduce,
     .program = [](int rank, S s) { return tree_reduce(rank, s.ranks, s.root); },
     .rounds = kLgFloor, .sent = kOne,
     .description = "up a binomial tree",
     .reference = kThakur},
    {.name = "reduce_scatter_gather", .collective = Collective::reduce,
     .program = [](int rank, S s) { return reduce_scatter_gather_reduce(rank, s.ranks, s.root); },
     .rounds = kHalvingsAndOne, .sent = kOne,
     .description = "each rank adds up one block and hands it to the root",
     .reference = "Rabenseifner, ICCS 2004"},
    {.name = "chain", .collective = Collective::reduce,
     .program = [](int rank, S s) { return chain_reduce(rank, s.ranks, s.root, s.segments); },
     .rounds = kAllOthers, .sent = kOne,
     .description = "segments are summed along a line of ranks",
     .reference = "Pjesivac-Grbovic et al., Cluster Computing 10(2), 2007",
     .segmented = true},

    {.name = "direct", .collective = Collective::gather,
     .program = [](int rank, S s) { return direct_gather(rank, s.ranks, s.root); },
     .rounds = kOne,
     .sent = {"1/P", [](S s) { return one(s) / s.ranks; }},
     .description = "each rank sends its block straight to the root",
     .reference = kThakur},
    {.name = "tree", .collective = Collective::gather,
     .program = [](int rank, S s) { return tree_gather(rank, s.ranks, s.root); },
     .rounds = kLgFloor, .sent = {"at most 1/2", tree_gather_sent},
     .description = "up a binomial tree: the root takes lg P messages, not P-1",
     .reference = kThakur},

    {.name = "direct", .collective = Collective::scatter,
     .program = [](int rank, S s) { return direct_scatter(rank, s.ranks, s.root); },
     .rounds = kOne, .sent = kOtherShares,
     .description = "the root sends each rank its block",
     .reference = kThakur},
    {.name = "tree", .collective = Collective::scatter,
     .program = [](int rank, S s) { return tree_scatter(rank, s.ranks, s.root); },
     .rounds = kLgFloor, .sent = kOtherShares,
     .description = "down a binomial tree: the root sends lg P messages, not P-1",
     .reference = kThakur},

    {.name = "direct", .collective = Collective::all_to_all,
     .program = [](int rank, S s) { return direct_all_to_all(rank, s.ranks); },
     .rounds = kOne, .sent = kOtherShares,
     .description = "each block goes straight to where it belongs",
     .reference = kThakur},
    {.name = "factored", .collective = Collective::all_to_all,
     .program = [](int rank, S s) { return factored_all_to_all(rank, s.ranks); },
     .rounds = {"prime factors of P", factored_rounds},
     .sent = {"sum of (f-1)/f", factored_sent},
     .description = "one digit of the rank's number after another is put right",
     .reference = kBruck},

    {.name = "dissemination", .collective = Collective::barrier,
     .program = [](int rank, S s) { return dissemination_barrier(rank, s.ranks); },
     .rounds = kLgCeil, .sent = kLgCeil,
     .description = "each tells the rank 2^k further on all that it has heard",
     .reference = "Hensgen, Finkel, Manber, IJPP 17(1), 1988"},
    {.name = "tree", .collective = Collective::barrier,
     .program = [](int rank, S s) { return tree_barrier(rank, s.ranks); },
     .rounds = kTwiceLgFloor, .sent = kLgCeil,
     .description = "up and down a binomial tree, with the fewest messages",
     .reference = kThakur},
};
// clang-format on

// Whether every rank finds its root in every tree, and the trees' blocks add up.
bool packs(const TreePacking& packing, int ranks) {
  std::int64_t blocks = 0;
  for (const PackedTree& tree : packing.trees) {
    blocks += tree.blocks;
    if (tree.blocks < 1 || std::ssize(tree.parent) != ranks) return false;
    for (int rank = 0; rank < ranks; ++rank) {
      int at = rank;
      for (int steps = 0; at != tree.root; ++steps) {
        if (at < 0 || at >= ranks || steps == ranks) return false;
        at = tree.parent[at];
      }
    }
    if (tree.root < 0 || tree.root >= ranks || tree.parent[tree.root] != -1) return false;
  }
  return blocks > 0 && blocks == packing.blocks;
}

bool is_rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

std::span<const Algorithm> algorithms(Collective collective) {
  const auto belongs = [&](const Algorithm& row) { return row.collective == collective; };
  const auto first = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), belongs);
  return {first, std::find_if_not(first, std::end(kAlgorithms), belongs)};
}

std::string full_name(const Algorithm& algorithm) {
  if (algorithm.collective == Collective::allreduce) return std::string(algorithm.name);
  return fmt::format("{}/{}", to_string(algorithm.collective), algorithm.name);
}

const Algorithm& find_algorithm(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms), [&](const Algorithm& row) {
    return row.name == name || fmt::format("{}/{}", to_string(row.collective), row.name) == name;
  });
  if (found != std::end(kAlgorithms)) return *found;
  std::vector<std::string> names;
  for (const Algorithm& row : kAlgorithms) names.push_back(full_name(row));
  const std::string guess = nearest(name, names);
  throw UsageError(guess.empty() ? fmt::format("no algorithm is called '{}'; 'trireme algorithms' lists them", name)
                                 : fmt::format("no algorithm is called '{}'; did you mean '{}'?", name, guess));
}

void check(const Algorithm& algorithm, const Setting& setting) {
  const std::string name = full_name(algorithm);
  if (setting.ranks < 1) throw UsageError(fmt::format("{} ranks can't run anything: give at least 1", setting.ranks));
  if (setting.ranks > kMostRanks) {
    throw UsageError(fmt::format("{} ranks are beyond reason: at most {}", setting.ranks, kMostRanks));
  }
  if (!algorithm.accepts(setting.ranks)) {
    throw UsageError(fmt::format("{} can't run on {} ranks: it takes {} only", name, setting.ranks, algorithm.takes));
  }
  if (setting.root < 0 || setting.root >= setting.ranks) {
    throw UsageError(fmt::format("there is no rank {} among {} to be root", setting.root, setting.ranks));
  }
  if (setting.root != 0 && !is_rooted(algorithm.collective)) throw UsageError(fmt::format("{} has no root", name));
  constexpr int kMostSegments = 1 << 12;
  if (setting.segments < 1 || setting.segments > kMostSegments) {
    throw UsageError(fmt::format("{} segments are not between 1 and {}", setting.segments, kMostSegments));
  }
  constexpr int kMostBlocks = std::numeric_limits<int>::max();
  if (algorithm.segmented && setting.segments > kMostBlocks / setting.ranks) {
    throw UsageError(fmt::format("{} segments on each of {} ranks are too many blocks: at most {}", setting.segments,
                                 setting.ranks, kMostBlocks));
  }
  if (setting.rows < 0 || (setting.rows > 0 && setting.ranks % setting.rows != 0)) {
    throw UsageError(fmt::format("{} rows do not divide {} ranks", setting.rows, setting.ranks));
  }
  if (setting.ranks_per_host < 0) throw UsageError(fmt::format("a host can't have {} ranks", setting.ranks_per_host));
  // byteps cuts about P^2 blocks.
  if (algorithm.served &&
      static_cast<std::int64_t>(setting.ranks) * setting.ranks > kMostBlocks / 2 / setting.segments) {
    throw UsageError(fmt::format("{} on {} ranks with {} segments would take too many blocks", name, setting.ranks,
                                 setting.segments));
  }
  if (algorithm.served && (setting.servers < 0 || setting.servers > setting.ranks)) {
    throw UsageError(fmt::format("{} takes 0 to {} servers for {} ranks, not {}", name, setting.ranks, setting.ranks,
                                 setting.servers));
  }
  if (setting.trees && !packs(*setting.trees, setting.ranks)) {
    throw UsageError(fmt::format("the packed trees do not each span {} ranks, or share out other than {} blocks",
                                 setting.ranks, setting.trees->blocks));
  }
}

int total_ranks(const Algorithm& algorithm, const Setting& setting) {
  return setting.ranks + (algorithm.served ? setting.servers : 0);
}

Schedule make_schedule(const Algorithm& algorithm, const Setting& setting) {
  check(algorithm, setting);
  Schedule schedule{.algorithm = full_name(algorithm),
                    .collective = algorithm.collective,
                    .root = setting.root,
                    .servers = total_ranks(algorithm, setting) - setting.ranks};
  for (int rank = 0; rank < total_ranks(algorithm, setting); ++rank) {
    schedule.programs.push_back(algorithm.program(rank, setting));
  }
  return schedule;
}

std::string broken_claim(const Algorithm& algorithm, const Setting& setting, const Proof& proof) {
  const double rounds = algorithm.rounds.value(setting);
  const int more = algorithm.segmented ? setting.segments - 1 : 0;
  if (proof.rounds < rounds || proof.rounds > rounds + more) {
    return fmt::format("{} claims {} = {} rounds on {} ranks, but takes {}", full_name(algorithm),
                       algorithm.rounds.text, rounds, setting.ranks, proof.rounds);
  }
  constexpr double kTolerance = 1e-9;
  const double sent = algorithm.sent.value(setting);
  if (std::abs(proof.sent - sent) > kTolerance) {
    return fmt::format("{} claims to send {} = {} buffers on {} ranks, but sends {}", full_name(algorithm),
                       algorithm.sent.text, sent, setting.ranks, proof.sent);
  }
  return {};
}

}  // namespace trireme
