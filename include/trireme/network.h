// Models of a network, for the simulator: which ways a message takes, how fast each is, and how far.
#pragma once

#include "trireme/error.h"
#include "trireme/packing.h"
#include "trireme/units.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The simulator's clock.
using Ticks = std::chrono::duration<std::int64_t, std::pico>;

Ticks to_ticks(Seconds time);

/// What a link does: a message of n bytes needs alpha + n / bandwidth.
struct Link {
  Seconds alpha{20e-6};
  double bandwidth = 10e9 / 8;  ///< bytes a second, each way
  /// Bytes that pass at once after a rest, as on links whose rate is limited by tokens: what such a link could have
  /// carried while it was idle, up to so much, is not lost.
  double burst = 0;
};

/// Places (ranks first, then switches) joined by ways. A way leads from one place to another and carries one message's
/// bandwidth at a time; those that come later wait. A message goes on while its end is still on its way.
class Network {
 public:
  struct Hop {
    int way;        ///< taken next
    int at;         ///< the place it leads to
    Ticks latency;  ///< until the first byte gets there
  };

  virtual ~Network() = default;

  /// The next hop from place `at` to rank `to`, which is another place.
  virtual Hop hop(int at, int to) const = 0;

  /// The graph for packing trees; none where every pair of ranks has the same way to each other.
  virtual std::optional<LinkGraph> links(int ranks) const = 0;

  int ranks() const { return ranks_; }
  int ways() const { return static_cast<int>(ways_.size()); }
  double ticks_per_byte(int way) const { return ways_[way].ticks_per_byte; }
  Ticks burst(int way) const { return ways_[way].burst; }  ///< how long a rest is made up for

  /// Whether all messages to a rank come in by the same way.
  bool one_way_in() const { return one_way_in_; }

  int ranks_per_host() const { return ranks_per_host_; }  ///< 0: not known
  int rows() const { return rows_; }                      ///< 0: not a torus

 protected:
  Network(int ranks, bool one_way_in, int ranks_per_host = 0, int rows = 0)
      : ranks_(ranks), one_way_in_(one_way_in), ranks_per_host_(ranks_per_host), rows_(rows) {}

  /// Throws UsageError if the pairs of so many ranks are too many to pack trees among.
  static void check_packable(int ranks);

  /// Returns the new way's number.
  int add_way(const Link& link);

 private:
  int ranks_;
  bool one_way_in_;
  int ranks_per_host_;
  int rows_;
  struct Way {
    double ticks_per_byte;
    Ticks burst;
  };
  std::vector<Way> ways_;
};

/// One switch: every rank has a way in and a way out, and nothing else is shared.
std::unique_ptr<Network> make_switch(int ranks, const Link& link);

/// Hosts of consecutive ranks: a fast switch inside each, one slow way in and out of it that its ranks share.
std::unique_ptr<Network> make_two_level(int ranks, int ranks_per_host, const Link& inside, const Link& between);

/// Rows and columns closed to rings; messages go along the row first, then along the column.
std::unique_ptr<Network> make_torus(int rows, int columns, const Link& link);

/// Any graph. Places are numbered, ranks before switches; a link joins two of them.
struct GraphLink {
  int a, b;
  Link link;
};
std::unique_ptr<Network> make_graph(int ranks, int switches, const std::vector<GraphLink>& links);

/// What a topology file describes, before the number of ranks is known.
struct Topology {
  std::string kind = "switch";  ///< switch, two_level, torus or graph
  Link link;                    ///< of a switch or torus, and between hosts
  Link inside;                  ///< within a host
  int ranks_per_host = 0;
  int rows = 0, columns = 0;
  int ranks = 0, switches = 0;  ///< of a graph
  std::vector<GraphLink> links;
};

/// Reads a topology from JSON; docs/topologies.md has its form. What it leaves open is taken from `link`. Throws
/// UsageError that names `source` and what is wrong.
Topology parse_topology(std::string_view json, std::string_view source, const Link& link);

/// The network for that many ranks. Throws UsageError if the topology is for fewer.
std::unique_ptr<Network> make_network(const Topology& topology, int ranks);

}  // namespace trireme
