#include "communicator/selection.h"

#include "communicator/operation.h"
#include "trireme/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

namespace trireme {
namespace {

/// Consecutive ranks a host, if all hosts have as many; the last may have fewer. 0: they differ otherwise.
int even_ranks_per_host(std::span<const int> hosts) {
  std::size_t each = 1;
  while (each < hosts.size() && hosts[each] == hosts[0]) ++each;
  std::set<int> seen;
  for (std::size_t begin = 0; begin < hosts.size(); begin += each) {
    const auto ranks = hosts.subspan(begin, std::min(each, hosts.size() - begin));
    const bool alike = std::ranges::all_of(ranks, [&](int host) { return host == ranks.front(); });
    if (!alike || !seen.insert(ranks.front()).second) return 0;
  }
  return static_cast<int>(each);
}

const Algorithm* row(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithms(collective)) {
    if (algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

/// How many others a rank in the middle talks to.
std::size_t peers_of(const Candidate& candidate) {
  std::set<int> peers;
  for (const Step& step : candidate.algorithm->program(candidate.setting.ranks / 2, candidate.setting).steps) {
    peers.insert(step.peer);
  }
  return peers.size();
}

/// What is wrong with an algorithm that was asked for from outside is told with where that was.
template <typename Find>
decltype(auto) naming_the_variable(const Find& find) {
  try {
    return find();
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("TRIREME_ALGORITHM: {}", error.what()));
  }
}

std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> names;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

/// Which algorithms TRIREME_ALGORITHM asks for: "broadcast/chain" for one collective, "chain" for each that has one of
/// that name, and is not named itself.
std::map<Collective, std::string> forced_by(std::string_view list) {
  std::map<Collective, std::string> forced;
  const auto force = [&](const Algorithm& algorithm) {
    const auto [found, fresh] = forced.emplace(algorithm.collective, algorithm.name);
    if (fresh || found->second == algorithm.name) return;
    const std::string_view collective = to_string(algorithm.collective);
    throw UsageError(
        fmt::format("TRIREME_ALGORITHM asks for both {} and {}, which are algorithms for {}: name one, as {}/{}",
                    found->second, algorithm.name, collective, collective, found->second));
  };
  for (const std::string_view name : names_in(list)) {
    const Algorithm& algorithm = naming_the_variable([&]() -> auto& { return find_algorithm(name); });
    if (name.find('/') != std::string_view::npos) force(algorithm);
  }
  const std::map<Collective, std::string> named = forced;
  for (const std::string_view name : names_in(list)) {
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.name == name && !named.contains(algorithm.collective)) force(algorithm);
    }
  }
  return forced;
}

}  // namespace

Selector::Selector(std::span<const int> hosts, Tuning tuning, std::string_view forced, Cores cores)
    : ranks_(static_cast<int>(hosts.size())),
      ranks_per_host_(even_ranks_per_host(hosts)),
      one_host_(std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host == hosts[0]; })),
      tuning_(std::move(tuning)),
      cores_(cores),
      forced_(forced_by(forced)) {}

Pick Selector::by_name(Collective collective, std::string_view name, std::string why) const {
  const Algorithm* algorithm = row(collective, name);
  if (algorithm == nullptr) {
    const Algorithm& other = find_algorithm(name);
    if (other.collective != collective) {
      throw UsageError(fmt::format("{} is an algorithm for {}, not for {}; 'trireme algorithms' lists them", name,
                                   to_string(other.collective), to_string(collective)));
    }
    algorithm = &other;
  }
  if (algorithm->served) {
    throw UsageError(fmt::format("{} needs extra ranks that only serve, which a communicator has not", name));
  }
  const Setting setting = suited(*algorithm, {.ranks = ranks_}, *make_network(topology(), ranks_));
  check(*algorithm, setting);
  return {algorithm, setting, std::move(why)};
}

const Pick& Selector::pick(Collective collective, std::size_t bytes, std::string_view asked) {
  if (!asked.empty()) {
    const auto key = std::pair(collective, std::string(asked));
    auto found = named_.find(key);
    if (found == named_.end()) found = named_.emplace(key, by_name(collective, asked, "the call asks for it")).first;
    return found->second;
  }
  const auto key = std::pair(collective, forced_.contains(collective) ? -1 : size_class(bytes));
  auto found = chosen_.find(key);
  if (found == chosen_.end()) {
    const auto forced = forced_.find(collective);
    Pick pick =
        forced != forced_.end()
            ? naming_the_variable([&] { return by_name(collective, forced->second, "TRIREME_ALGORITHM asks for it"); })
            : fastest(collective, std::bit_ceil(std::max<std::size_t>(1, bytes)));
    found = chosen_.emplace(key, std::move(pick)).first;
  }
  return found->second;
}

const Pick& Selector::pick_direct(Collective collective) {
  return pick(collective, 0, forced_.contains(collective) ? "" : "direct");
}

Pick Selector::fastest(Collective collective, std::size_t bytes) const {
  if (ranks_ == 1) return by_name(collective, algorithms(collective).front().name, "there is one rank");
  return one_host_ ? on_one_host(collective, bytes) : between_hosts(collective, bytes);
}

// In shared memory a message costs little and moving bytes much, so what matters is how often ranks wait for each other
// and how often a byte is touched: straight to where it belongs, in one pass, wins but for the smallest sizes.
Pick Selector::on_one_host(Collective collective, std::size_t bytes) const {
  constexpr std::size_t kSmall = 4096;
  constexpr int kFew = 16;
  const std::string why = "all ranks share one host's memory";
  switch (collective) {
    case Collective::allreduce:
      if (bytes > kSmall) {
        return by_name(collective, "butterfly", why + ", where each rank adds up its part in one pass");
      }
      if (ranks_ == 2) return by_name(collective, "fully_connected", why + ", and so few bytes are soon exchanged");
      return ranks_ <= kFew ? by_name(collective, "parameter_server", why + ", and one rank soon adds up so few bytes")
                            : by_name(collective, "recursive_doubling", why + ", and so few bytes take few rounds");
    case Collective::broadcast: return by_name(collective, bytes <= kSmall ? "tree" : "scatter_allgather", why);
    case Collective::reduce: return by_name(collective, bytes <= kSmall ? "tree" : "reduce_scatter_gather", why);
    case Collective::barrier: return by_name(collective, "dissemination", why);
    default: return by_name(collective, "direct", why);
  }
}

Topology Selector::topology() const {
  Topology topology;
  topology.link = one_host_ ? tuning_.inside : tuning_.between;
  if (ranks_per_host_ > 1 && !one_host_) {
    topology.kind = "two_level";
    topology.inside = tuning_.inside;
    topology.ranks_per_host = ranks_per_host_;
  }
  return topology;
}

// The simulator's time, and what the messages take of a rank's own time: the model has no such thing.
Seconds Selector::expected(const Candidate& candidate) const {
  return candidate.cost.time + tuning_.message * static_cast<double>(candidate.cost.steps) / ranks_;
}

Pick Selector::between_hosts(Collective collective, std::size_t bytes) const {
  // There the processors are the network, and all bytes pass through them whichever way they go: few messages win.
  constexpr std::size_t kFewBytes = std::size_t{128} << 10;
  constexpr int kFewRanks = 8;
  if (cores_ == Cores::shared && collective == Collective::allreduce && bytes <= kFewBytes && ranks_ <= kFewRanks) {
    // Both have the fewest. One rank that does it all for many others soon has done so with tiny messages only.
    constexpr std::size_t kTiny = std::size_t{16} << 10;
    constexpr int kNotMany = 4;
    return by_name(collective, ranks_ > kNotMany && bytes <= kTiny ? "parameter_server" : "tree",
                   "it has the fewest messages, and the ranks share too few cores");
  }
  const Topology network = topology();
  // The engine cuts messages by itself, so algorithms need not.
  const Situation situation{.topology = &network,
                            .collective = collective,
                            .setting = {.ranks = ranks_},
                            .bytes = bytes,
                            .reduce_rate = tuning_.reduce_rate,
                            .segment_bytes = kSegmentBytes,
                            .most_segments = 1};
  std::vector<Candidate> candidates = choose(situation).candidates;
  // Training relies on all ranks having the same bits: what does not give them runs only if it is asked for.
  if (ranks_ > 2) std::erase_if(candidates, [](const Candidate& each) { return !each.algorithm->same_bits; });
  std::stable_sort(candidates.begin(), candidates.end(),
                   [this](const Candidate& a, const Candidate& b) { return expected(a) < expected(b); });
  // Of those that the model can hardly tell apart, the one whose ranks talk to the fewest others: many that send to one
  // at once get in each other's way, which the model does not know.
  constexpr double kAlike = 1.03;
  const auto alike = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return expected(candidate) > kAlike * expected(candidates.front());
  });
  const auto chosen = std::min_element(
      candidates.begin(), alike, [](const Candidate& a, const Candidate& b) { return peers_of(a) < peers_of(b); });
  std::rotate(candidates.begin(), chosen, chosen + 1);
  const Candidate& best = candidates.front();
  std::string why =
      fmt::format("{} expected for {}", format_time(expected(best)), format_bytes(static_cast<double>(bytes)));
  if (candidates.size() > 1) {
    why += fmt::format(", {} by {}", format_time(expected(candidates[1])), candidates[1].algorithm->name);
  }
  why += tuning_.source.empty() ? " (on a network that was never measured: run 'trireme tune')"
                                : fmt::format(" (network as in {})", tuning_.source);
  return {best.algorithm, best.setting, std::move(why)};
}

}  // namespace trireme
