// Allreduce between real ranks beside other libraries, as `trireme bench` measures it: the peer's time over Trireme's,
// so that above 1 Trireme is faster. The probe is the least that shared memory can cost: there 1 is as good as it gets.
#include "command.h"
#include "figures.h"
#include "trireme/error.h"
#include "trireme/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace trireme {
namespace {

using Json = nlohmann::json;

/// One run of `trireme bench allreduce` on one size, which gives several figures.
struct Run {
  std::string transport;
  int ranks = 0;
  std::string bytes;
  std::vector<std::string> buffers;
  std::vector<std::string> peers;
};

/// What the run has measured; it happens when first asked for.
class Report {
 public:
  explicit Report(Run run) : run_(std::move(run)) {}

  double ratio(const std::string& buffers, const std::string& peer) {
    if (report_.is_null()) measure();
    for (const Json& result : report_["results"]) {
      if (result["buffers"] == buffers) return result["ratio"][peer];
    }
    throw Error(fmt::format("{} buffers are not in the report", buffers));
  }

 private:
  void measure() {
    const std::string command = fmt::format(
        "'{}' bench allreduce -n {} --transport {} --bytes {} --buffers {} --against {} --json", TRIREME_PROGRAM,
        run_.ranks, run_.transport, run_.bytes, fmt::join(run_.buffers, ","), fmt::join(run_.peers, ","));
    report_ = Json::parse(output_of(command), nullptr, false);
    if (!report_.is_object()) throw Error(fmt::format("{} gave no report", command));
  }

  Run run_;
  Json report_;
};

/// Those of the peers that this build has.
std::vector<std::string> built(const std::vector<std::string>& peers) {
  std::vector<std::string> found;
  for (const std::string& peer : peers) {
    const bool probe = peer == "probe";
    const std::string worker = probe ? "probe" : fmt::format("peers/{}_collective", peer);
    if (std::filesystem::exists(std::filesystem::path(TRIREME_BENCH_FOLDER) / worker)) found.push_back(peer);
  }
  return found;
}

void add(std::vector<Figure>& figures, const Run& run) {
  if (run.peers.empty()) return;
  const auto report = std::make_shared<Report>(run);
  for (const std::string& buffers : run.buffers) {
    for (const std::string& peer : run.peers) {
      const std::string kind = run.transport == "shm" ? "_" + buffers : "";
      figures.push_back(
          {fmt::format("allreduce_{}_{}_ranks{}_{}_vs_{}_ratio", run.transport, run.ranks, kind, run.bytes, peer),
           [=] { return report->ratio(buffers, peer); }});
    }
  }
}

}  // namespace

std::vector<Figure> collective_figures() {
  std::vector<Figure> figures;
  const std::vector<std::string> in_memory = built({"openmpi", "probe"});
  for (const char* bytes : {"1KiB", "64KiB", "1MiB", "16MiB", "64MiB"}) {
    add(figures, {"shm", 2, bytes, {"window", "ordinary"}, in_memory});
  }
  for (const int ranks : {4, 8}) {
    for (const char* bytes : {"64KiB", "1MiB", "16MiB", "64MiB"}) {
      add(figures, {"shm", ranks, bytes, {"window"}, in_memory});
    }
  }
  for (const int ranks : {2, 4}) {
    for (const char* bytes : {"1KiB", "16KiB", "64KiB", "1MiB", "16MiB", "64MiB"}) {
      add(figures, {"tcp", ranks, bytes, {"ordinary"}, built({"openmpi", "gloo"})});
    }
  }
  return figures;
}

}  // namespace trireme
