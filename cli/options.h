// Options that several subcommands share, and what they come to.
#pragma once

#include "trireme/algorithms.h"
#include "trireme/choose.h"
#include "trireme/network.h"
#include "trireme/program.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::cli {

/// The words between commas. Throws UsageError that names `option` if one is empty, or there twice.
std::vector<std::string> split_list(const std::string& list, const std::string& option);

/// What --bytes says of buffers of float32: sizes and ranges A..B, which go up by fours. In order, each once. Throws
/// UsageError.
std::vector<std::uint64_t> parse_sizes(const std::string& text);

/// "8" or "1..64".
struct RankRange {
  int first;
  int last;
};
RankRange parse_rank_range(const std::string& text);

/// --ranks, --segments, --root and what else an algorithm may be told.
struct SettingOptions {
  std::string ranks;
  Setting setting;

  void add(CLI::App& to);

  /// Whether the user gave the option.
  bool given(const std::string& option) const;

  /// Throws UsageError if an option was given that means nothing to the algorithm, or, without one, to a program file.
  void check_meaning(const Algorithm* algorithm) const;

  /// The setting with --ranks P in it. Throws UsageError if that was not given.
  Setting resolve() const;

 private:
  const CLI::App* command_ = nullptr;
};

/// --bytes, --alpha, --bandwidth, --reduce-rate, --topology.
struct NetworkOptions {
  std::string bytes = "1MiB";
  std::string alpha = "20us";
  std::string bandwidth = "10Gbit";
  std::string reduce_rate = "8GB";
  std::string topology;

  void add(CLI::App& command, bool with_bytes = true);
  Topology read_topology() const;

  /// "one switch, alpha 20us, bandwidth 10Gbit, reduce rate 8GB"
  std::string describe() const;
};

/// What there is to choose for, with the topology that it points into.
struct ReadSituation {
  Topology topology;
  Situation situation;

  ReadSituation(const SettingOptions& setting, const NetworkOptions& network, Collective collective);
  ReadSituation(const ReadSituation&) = delete;
  ReadSituation& operator=(const ReadSituation&) = delete;
};

/// --collective NAME; allreduce if not given.
void add_collective(CLI::App& command, std::string& name);

/// The row that a name means, with --collective as a hint for short names.
const Algorithm& find_row(const std::string& name, const std::string& collective);

/// Whether the name is a file's: no algorithm has it, and such a file exists.
bool names_file(const std::string& name);

}  // namespace trireme::cli
