// Topology files: JSON in, a checked Topology out. docs/topologies.md describes the form.
#include "trireme/algorithms.h"
#include "trireme/error.h"
#include "trireme/names.h"
#include "trireme/network.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace trireme {
namespace {

using Json = nlohmann::json;

class TopologyReader {
 public:
  TopologyReader(std::string_view source, const Link& link) : source_(source), default_(link) {}

  Topology read(std::string_view text) const {
    const Json json = parse(text);
    if (!json.is_object()) fail(R"(it must be one object, like {"kind": "switch"})");
    if (!json.contains("kind") || !json["kind"].is_string()) {
      fail(R"(it needs a "kind": "switch", "two_level", "torus" or "graph")");
    }
    Topology topology{.kind = json["kind"], .link = default_, .inside = {}, .links = {}};
    if (topology.kind == "switch") {
      allow(json, {"kind", "alpha", "latency", "bandwidth", "burst"});
      topology.link = link(json, default_);
    } else if (topology.kind == "two_level") {
      allow(json, {"kind", "ranks_per_host", "inside", "between"});
      topology.ranks_per_host = count(json, "ranks_per_host", 1);
      for (const char* part : {"inside", "between"})
        allow(required(json, part), {"alpha", "latency", "bandwidth", "burst"});
      topology.inside = link(json["inside"], default_, "inside");
      topology.link = link(json["between"], default_, "between");
    } else if (topology.kind == "torus") {
      allow(json, {"kind", "rows", "columns", "alpha", "latency", "bandwidth", "burst"});
      topology.rows = count(json, "rows", 1);
      topology.columns = count(json, "columns", 1);
      topology.link = link(json, default_);
    } else if (topology.kind == "graph") {
      read_graph(json, topology);
    } else {
      const std::vector<std::string> kinds{"switch", "two_level", "torus", "graph"};
      const std::string guess = nearest(topology.kind, kinds);
      fail(fmt::format("no kind is called '{}'{}", topology.kind,
                       guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess)));
    }
    return topology;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw UsageError(fmt::format("{}: {}", source_, message));
  }

  Json parse(std::string_view text) const {
    try {
      return Json::parse(text);
    } catch (const Json::parse_error& error) {
      const std::string_view what = error.what();
      fail(fmt::format("not JSON: {}", what.substr(what.find("] ") + 2)));
    }
  }

  void allow(const Json& json, const std::vector<std::string>& names) const {
    if (!json.is_object()) return;
    for (const auto& item : json.items()) {
      if (std::find(names.begin(), names.end(), item.key()) != names.end()) continue;
      const std::string guess = nearest(item.key(), names);
      fail(fmt::format("there is no field '{}' here{}", item.key(),
                       guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess)));
    }
  }

  const Json& required(const Json& json, const char* name) const {
    if (!json.contains(name)) fail(fmt::format("it needs \"{}\"", name));
    return json[name];
  }

  int count(const Json& json, const char* name, int least) const {
    const Json& value = required(json, name);
    if (!value.is_number_integer() || value < least || value > kMostRanks) {
      fail(fmt::format("\"{}\" must be a whole number from {} to {}, not {}", name, least, kMostRanks, value.dump()));
    }
    return value;
  }

  // A link's properties, each of which may be left to the default. Numbers are seconds and bytes a second.
  Link link(const Json& json, const Link& otherwise, const std::string& where = "it") const {
    if (!json.is_object()) fail(fmt::format("\"{}\" must be an object with alpha and bandwidth", where));
    if (json.contains("alpha") && json.contains("latency"))
      fail(fmt::format("{}: alpha and latency are the same; give one", where));
    Link link = otherwise;
    for (const char* name : {"alpha", "latency"}) {
      if (json.contains(name)) link.alpha = time(json[name], name, where);
    }
    if (json.contains("bandwidth")) link.bandwidth = rate(json["bandwidth"], where);
    if (json.contains("burst")) link.burst = bytes(json["burst"], where);
    return link;
  }

  Seconds time(const Json& value, const char* name, const std::string& where) const {
    if (value.is_string()) return quantity(where, [&] { return parse_time(value.get<std::string>()); });
    if (!value.is_number() || value < 0) {
      fail(fmt::format("{}: {} must be a time like \"5us\" and not negative, not {}", where, name, value.dump()));
    }
    return Seconds(value.get<double>());
  }

  double rate(const Json& value, const std::string& where) const {
    if (value.is_string()) return quantity(where, [&] { return parse_rate(value.get<std::string>()); });
    if (!value.is_number() || value <= 0) {
      fail(fmt::format("{}: bandwidth must be a rate like \"10Gbit\" and more than 0, not {}", where, value.dump()));
    }
    return value;
  }

  double bytes(const Json& value, const std::string& where) const {
    if (value.is_string()) {
      return static_cast<double>(quantity(where, [&] { return parse_bytes(value.get<std::string>()); }));
    }
    if (!value.is_number() || value < 0) {
      fail(fmt::format("{}: burst must be bytes like \"64KiB\" and not negative, not {}", where, value.dump()));
    }
    return value;
  }

  template <class Read>
  auto quantity(const std::string& where, const Read& read) const -> decltype(read()) {
    try {
      return read();
    } catch (const UsageError& error) {
      fail(fmt::format("{}: {}", where, error.what()));
    }
  }

  void read_graph(const Json& json, Topology& topology) const {
    allow(json, {"kind", "ranks", "switches", "links"});
    topology.ranks = count(json, "ranks", 1);
    topology.switches = json.contains("switches") ? count(json, "switches", 0) : 0;
    const Json& links = required(json, "links");
    if (!links.is_array()) fail("\"links\" must be a list");
    for (std::size_t i = 0; i < links.size(); ++i) {
      const std::string where = fmt::format("link {}", i);
      if (!links[i].is_object()) fail(fmt::format("{} must be an object", where));
      allow(links[i], {"between", "bandwidth", "alpha", "latency", "burst"});
      const Json& between = required(links[i], "between");
      const auto is_place = [](const Json& value) {
        return value.is_number_integer() && value >= 0 && value < 2 * kMostRanks;
      };
      const bool pair = between.is_array() && between.size() == 2 && is_place(between[0]) && is_place(between[1]);
      if (!pair) fail(fmt::format("{}: \"between\" must be two places, like [0, 1]", where));
      topology.links.push_back({between[0], between[1], link(links[i], default_, where)});
    }
    // Whether the places exist and are all connected shows when the network is made; do it now, while the file is
    // known.
    quantity("its links", [&] { return make_graph(topology.ranks, topology.switches, topology.links); });
  }

  std::string_view source_;
  Link default_;
};

}  // namespace

Topology parse_topology(std::string_view json, std::string_view source, const Link& link) {
  return TopologyReader(source, link).read(json);
}

std::unique_ptr<Network> make_network(const Topology& topology, int ranks) {
  const auto must_have = [&](std::int64_t places) {
    if (ranks > places) {
      throw UsageError(fmt::format("the {} has {} ranks, and {} are needed", topology.kind, places, ranks));
    }
  };
  if (topology.kind == "two_level") {
    return make_two_level(ranks, topology.ranks_per_host, topology.inside, topology.link);
  }
  if (topology.kind == "torus") {
    const std::int64_t places = static_cast<std::int64_t>(topology.rows) * topology.columns;
    if (places > kMostRanks)
      throw UsageError(fmt::format("a torus of {} ranks is beyond reason: at most {}", places, kMostRanks));
    must_have(places);
    return make_torus(topology.rows, topology.columns, topology.link);
  }
  if (topology.kind == "graph") {
    must_have(topology.ranks);
    return make_graph(topology.ranks, topology.switches, topology.links);
  }
  return make_switch(ranks, topology.link);
}

}  // namespace trireme
