#include "cli/options.h"

#include "cli/files.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

namespace trireme::cli {
namespace {

int parse_ranks(std::string_view text) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  const bool number = error != std::errc::invalid_argument && end == text.data() + text.size();
  if (!number) throw UsageError(fmt::format("'{}' is not a number of ranks", text));
  if (error == std::errc::result_out_of_range || ranks < 1 || ranks > kMostRanks) {
    throw UsageError(fmt::format("{} ranks are beyond reason: give 1 to {}", text, kMostRanks));
  }
  return ranks;
}

// By fours, and the last.
std::vector<std::uint64_t> range(std::uint64_t first, std::uint64_t last) {
  if (first < 1 || first > last) throw UsageError("--bytes A..B goes from 1 byte or more upward");
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = first; size<last; size = size> last / 4 ? last : size * 4) sizes.push_back(size);
  sizes.push_back(last);
  return sizes;
}

}  // namespace

std::vector<std::string> split_list(const std::string& list, const std::string& option) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string word = list.substr(begin, end - begin);
    if (word.empty()) throw UsageError(fmt::format("{} '{}' has an empty place in it", option, list));
    if (std::find(words.begin(), words.end(), word) != words.end()) {
      throw UsageError(fmt::format("{} '{}' has {} twice", option, list, word));
    }
    words.push_back(std::move(word));
    begin = end + 1;
  }
  return words;
}

std::vector<std::uint64_t> parse_sizes(const std::string& text) {
  std::vector<std::uint64_t> sizes;
  for (const std::string& word : split_list(text, "--bytes")) {
    const std::size_t dots = word.find("..");
    if (dots == std::string::npos) {
      sizes.push_back(parse_bytes(word));
      continue;
    }
    for (const std::uint64_t size : range(parse_bytes(word.substr(0, dots)), parse_bytes(word.substr(dots + 2)))) {
      sizes.push_back(size);
    }
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const std::uint64_t size : sizes) {
    if (size == 0 || size % sizeof(float) != 0) throw UsageError(fmt::format("{} bytes are not whole float32s", size));
  }
  return sizes;
}

RankRange parse_rank_range(const std::string& text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos) return {parse_ranks(text), parse_ranks(text)};
  const RankRange range{parse_ranks(std::string_view(text).substr(0, dots)),
                        parse_ranks(std::string_view(text).substr(dots + 2))};
  if (range.first > range.last) throw UsageError(fmt::format("the range {} is empty: write it as 1..64", text));
  return range;
}

void SettingOptions::add(CLI::App& to) {
  command_ = &to;
  to.add_option("--ranks", ranks, "how many ranks (P)")->type_name("P");
  to.add_option("--segments", setting.segments, "pieces that a pipelined algorithm cuts its blocks into")
      ->type_name("S");
  to.add_option("--root", setting.root, "the root of broadcast, reduce, gather and scatter")->type_name("R");
  to.add_option("--ranks-per-host", setting.ranks_per_host, "for hierarchical_ring; default: about sqrt(P)")
      ->type_name("G");
  to.add_option("--rows", setting.rows, "for torus; default: as square as P allows")->type_name("R");
  to.add_option("--servers", setting.servers, "extra ranks that serve, for byteps")->type_name("K");
}

bool SettingOptions::given(const std::string& option) const {
  const CLI::Option* const found = command_->get_option_no_throw(option);
  return found != nullptr && found->count() > 0;
}

void SettingOptions::check_meaning(const Algorithm* algorithm) const {
  if (algorithm == nullptr) {
    for (const char* option :
         {"--ranks", "--collective", "--segments", "--root", "--ranks-per-host", "--rows", "--servers"}) {
      if (given(option))
        throw UsageError(fmt::format("{} does not go with a program file, which says it itself", option));
    }
    return;
  }
  const auto refuse_unless = [&](bool means_something, const char* option) {
    if (given(option) && !means_something) {
      throw UsageError(fmt::format("{} means nothing to {}", option, full_name(*algorithm)));
    }
  };
  refuse_unless(algorithm->segmented, "--segments");
  refuse_unless(algorithm->served, "--servers");
  refuse_unless(algorithm->name == "torus", "--rows");
  refuse_unless(algorithm->name == "hierarchical_ring", "--ranks-per-host");
}

Setting SettingOptions::resolve() const {
  if (ranks.empty()) throw UsageError("say how many ranks: --ranks P");
  Setting resolved = setting;
  resolved.ranks = parse_ranks(ranks);
  return resolved;
}

void NetworkOptions::add(CLI::App& command, bool with_bytes) {
  if (with_bytes) command.add_option("--bytes", bytes, "size of the buffer")->type_name("SIZE")->capture_default_str();
  command.add_option("--alpha", alpha, "time until a message's first byte arrives")
      ->type_name("TIME")
      ->capture_default_str();
  command.add_option("--bandwidth", bandwidth, "of a rank's way in, and of its way out")
      ->type_name("RATE")
      ->capture_default_str();
  command.add_option("--reduce-rate", reduce_rate, "bytes that a rank adds in a second")
      ->type_name("RATE")
      ->capture_default_str();
  command.add_option("--topology", topology, "a network other than one switch; see docs/topologies.md")
      ->type_name("FILE");
}

Topology NetworkOptions::read_topology() const {
  const Link link{.alpha = parse_time(alpha), .bandwidth = parse_rate(bandwidth)};
  if (topology.empty()) return {.kind = "switch", .link = link, .inside = {}, .links = {}};
  return parse_topology(read_file(topology), topology, link);
}

std::string NetworkOptions::describe() const {
  const std::string where = topology.empty()
                                ? fmt::format("one switch, alpha {}, bandwidth {}", alpha, bandwidth)
                                : fmt::format("topology {}", std::filesystem::path(topology).filename().string());
  return fmt::format("{}, reduce rate {}", where, reduce_rate);
}

ReadSituation::ReadSituation(const SettingOptions& setting, const NetworkOptions& network, Collective collective)
    : topology(network.read_topology()),
      situation{.topology = &topology,
                .collective = collective,
                .setting = setting.resolve(),
                .bytes = parse_bytes(network.bytes),
                .reduce_rate = parse_rate(network.reduce_rate),
                .with_servers = setting.given("--servers")} {}

void add_collective(CLI::App& command, std::string& name) {
  command.add_option("--collective", name, "allreduce, broadcast, ... ; 'trireme algorithms' shows them")
      ->type_name("NAME");
}

const Algorithm& find_row(const std::string& name, const std::string& collective) {
  if (name.find('.') != std::string::npos) {
    throw UsageError(fmt::format("no algorithm is called '{}', and there is no such file", name));
  }
  if (collective.empty()) return find_algorithm(name);
  if (name.find('/') != std::string::npos)
    throw UsageError(fmt::format("{} names its collective; leave out --collective", name));
  return find_algorithm(fmt::format("{}/{}", to_string(parse_collective(collective)), name));
}

bool names_file(const std::string& name) {
  const auto rows = algorithms();
  const bool known = std::any_of(rows.begin(), rows.end(),
                                 [&](const Algorithm& row) { return row.name == name || full_name(row) == name; });
  std::error_code ignored;
  return !known && std::filesystem::exists(name, ignored);
}

}  // namespace trireme::cli
