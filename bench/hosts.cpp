// Eight hosts of 500 Mbit/s in network namespaces (tools/netlab): how near to the wire collectives and training come
// there, and how near the simulator is to the truth. Needs root; where it can't be had, these figures are left out.
#include "command.h"
#include "figures.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unistd.h>

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr int kHosts = 8;
constexpr double kBytesPerSecond = 500e6 / 8;
constexpr int kRounds = 3;

/// What an allreduce of so many bytes takes at least: each rank sends and receives 2(P-1)/P of them.
double wire_seconds(double bytes) { return 2.0 * (kHosts - 1) / kHosts * bytes / kBytesPerSecond; }

/// It exists while this does, under a name of its own.
class Cluster {
 public:
  Cluster() : name_(fmt::format("bench{}", ::getpid())), folder_(std::filesystem::temp_directory_path() / name_) {
    const std::string said = lab(fmt::format("up {} 500mbit --name {}", kHosts, name_));
    if (!said.empty()) throw Error(said);
    std::filesystem::create_directory(folder_);
  }

  ~Cluster() {
    lab(fmt::format("down --name {}", name_));
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// What rank 0 prints of a command that runs on all hosts. Commands on its input are one a line.
  std::string each(const std::string& command, const std::string& input = "") const {
    const std::string all = lab(fmt::format("each --name {} {}", name_, command), input);
    std::istringstream lines(all);
    std::string output;
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kFirst = "[0] ";
      if (line.starts_with(kFirst)) output += line.substr(kFirst.size()) + "\n";
    }
    if (output.empty()) throw Error(fmt::format("{} on {} hosts: {}", command, kHosts, all));
    return output;
  }

  /// The same, for a program that answers with one JSON object.
  Json report(const std::string& command) const {
    const std::string output = each(command);
    const Json report = Json::parse(output.substr(std::min(output.size(), output.find('{'))), nullptr, false);
    if (!report.is_object()) throw Error(fmt::format("{} gave no report: {}", command, output));
    return report;
  }

  const std::filesystem::path& folder() const { return folder_; }

 private:
  static std::string lab(const std::string& arguments, const std::string& input = "") {
    return output_of(fmt::format("printf '{}' | timeout 300 '{}' {} 2>&1", input, TRIREME_NETLAB, arguments));
  }

  std::string name_;
  std::filesystem::path folder_;
};

/// The fifth field of a worker's line on a size: its median, in microseconds.
double median_of(const std::string& output, std::size_t bytes) {
  std::istringstream lines(output);
  const std::string wanted = fmt::format("allreduce,{},{},", kHosts, bytes);
  for (std::string line; std::getline(lines, line);) {
    if (const std::size_t at = line.find(wanted); at != std::string::npos)
      return std::stod(line.substr(at + wanted.size()));
  }
  throw Error(fmt::format("no time for {} bytes in: {}", bytes, output));
}

/// Everything, measured when it is first asked for: tuned first, as a user would, then in turn with the peers.
class Hosts {
 public:
  double wire_share() { return wire_seconds(kLarge) * 1e6 / large(); }
  double large() { return median(collectives().at("large")); }
  double small() { return median(collectives().at("small")); }
  double gloo_large() { return median(collectives().at("gloo_large")); }
  double gloo_small() { return median(collectives().at("gloo_small")); }

  /// Of all algorithms and sizes, the share whose prediction is within 10 % of the measurement.
  double predicted_share() {
    const Json& rows = tuned()["allreduce"];
    const auto good = std::count_if(rows.begin(), rows.end(),
                                    [](const Json& row) { return std::abs(row["error"].get<double>()) <= 0.1; });
    return static_cast<double>(good) / static_cast<double>(rows.size());
  }

  double worst_prediction() {
    double worst = 0;
    for (const Json& row : tuned()["allreduce"]) worst = std::max(worst, std::abs(row["error"].get<double>()));
    return 100 * worst;
  }

  /// By how much what selection takes is slower than the fastest, at the size where that is most.
  double worst_choice() {
    std::map<std::uint64_t, double> fastest;
    std::map<std::uint64_t, double> chosen;
    for (const Json& row : tuned()["allreduce"]) {
      const std::uint64_t bytes = row["bytes"];
      const double time = row["measured_us"];
      fastest[bytes] = fastest.contains(bytes) ? std::min(fastest[bytes], time) : time;
      if (row["chosen"]) chosen[bytes] = time;
    }
    double worst = 0;
    for (const auto& [bytes, time] : chosen) worst = std::max(worst, time / fastest[bytes] - 1);
    return 100 * worst;
  }

  double step() { return median(training().at("step")); }
  double pytorch_step() { return median(training().at("pytorch")); }

  /// The step over the wire's time for the gradients and what can't overlap with it.
  double step_over_limit() { return median(training().at("over_limit")); }

  /// In which share of backward gradients were on their way.
  double backward_overlapped() { return median(training().at("overlapped")); }

 private:
  static constexpr std::size_t kLarge = 16 << 20;
  static constexpr std::size_t kSmall = 1 << 10;
  static constexpr const char* kModel = "2048 4 32 5";

  using Times = std::map<std::string, std::vector<double>>;

  Cluster& cluster() {
    if (!cluster_) cluster_ = std::make_unique<Cluster>();
    return *cluster_;
  }

  std::string with_tuning(const std::string& command) {
    tuned();
    return fmt::format("env TRIREME_TUNING='{}' {}", (cluster().folder() / "tuning.json").string(), command);
  }

  const Json& tuned() {
    if (tuned_.is_null()) {
      const std::string file = (cluster().folder() / "tuning.json").string();
      tuned_ = cluster().report(fmt::format("'{}' tune --json --output '{}'", TRIREME_PROGRAM, file));
    }
    return tuned_;
  }

  const Times& collectives() {
    if (!collectives_.empty()) return collectives_;
    const std::string ours = with_tuning(fmt::format("'{}' bench-rank", TRIREME_PROGRAM));
    const std::string gloo = fmt::format("{}/peers/gloo_collective", TRIREME_BENCH_FOLDER);
    for (int round = 0; round < kRounds; ++round) {
      const std::string said = cluster().each(
          ours,
          fmt::format("allreduce {} 15 ordinary chosen\\nallreduce {} 500 ordinary chosen\\nquit\\n", kLarge, kSmall));
      collectives_["large"].push_back(median_of(said, kLarge));
      collectives_["small"].push_back(median_of(said, kSmall));
      if (!std::filesystem::exists(gloo)) continue;
      const auto meeting = cluster().folder() / fmt::format("gloo{}", round);
      std::filesystem::create_directory(meeting);
      const std::string gloo_said =
          cluster().each(fmt::format("'{}' '{}' eth0 best", gloo, meeting.string()),
                         fmt::format("allreduce {} 15\\nallreduce {} 100\\nquit\\n", kLarge, kSmall));
      collectives_["gloo_large"].push_back(median_of(gloo_said, kLarge));
      collectives_["gloo_small"].push_back(median_of(gloo_said, kSmall));
    }
    return collectives_;
  }

  const Times& training() {
    if (!training_.empty()) return training_;
#ifdef TRIREME_PYTORCH_DDP
    const std::string threads = fmt::format("env {} GLOO_SOCKET_IFNAME=eth0", one_thread());
    const std::string ours = with_tuning(fmt::format(
        "{0} '{1}/training_step' ddp {2} --trace '{1}/ddp_8_hosts_trace.json'", threads, TRIREME_BENCH_FOLDER, kModel));
    const std::string pytorch = fmt::format("{} {} '{}' {} {}", threads, python(), TRIREME_PYTORCH_DDP, kHosts, kModel);
    for (int round = 0; round < kRounds; ++round) {
      const Json report = cluster().report(ours);
      const double step = report["median_ms"];
      const double wire = wire_seconds(report["parameters"].get<double>() * sizeof(float)) * 1e3;
      const double apart = report["forward_ms"].get<double>() + report["optimizer_ms"].get<double>();
      training_["step"].push_back(step);
      training_["over_limit"].push_back(step / (wire + apart));
      training_["overlapped"].push_back(report["overlapped_share"]);
      training_["pytorch"].push_back(cluster().report(pytorch)["median_ms"]);
    }
#endif
    return training_;
  }

  std::unique_ptr<Cluster> cluster_;
  Json tuned_;
  Times collectives_;
  Times training_;
};

}  // namespace

std::vector<Figure> host_figures() {
  if (::geteuid() != 0 || output_of("command -v ip").empty()) {
    fmt::print(stderr, "trireme_bench: no figures of hosts in network namespaces, which need root and iproute2\n");
    return {};
  }
  const auto hosts = std::make_shared<Hosts>();
  std::vector<Figure> figures = {
      {"tune_8_hosts_predicted_within_10_percent_share", [=] { return hosts->predicted_share(); }},
      {"tune_8_hosts_worst_prediction_percent", [=] { return hosts->worst_prediction(); }},
      {"tune_8_hosts_worst_choice_percent", [=] { return hosts->worst_choice(); }},
      {"allreduce_8_hosts_16MiB_us", [=] { return hosts->large(); }},
      {"allreduce_8_hosts_16MiB_wire_share", [=] { return hosts->wire_share(); }},
      {"allreduce_8_hosts_1KiB_us", [=] { return hosts->small(); }},
  };
  if (std::filesystem::exists(fmt::format("{}/peers/gloo_collective", TRIREME_BENCH_FOLDER))) {
    figures.push_back({"allreduce_8_hosts_16MiB_vs_gloo_ratio", [=] { return hosts->gloo_large() / hosts->large(); }});
    figures.push_back({"allreduce_8_hosts_1KiB_vs_gloo_ratio", [=] { return hosts->gloo_small() / hosts->small(); }});
  }
#ifdef TRIREME_PYTORCH_DDP
  figures.push_back({"ddp_8_hosts_step_ms", [=] { return hosts->step(); }});
  figures.push_back({"ddp_8_hosts_step_over_limit", [=] { return hosts->step_over_limit(); }});
  figures.push_back({"ddp_8_hosts_backward_overlapped_share", [=] { return hosts->backward_overlapped(); }});
  figures.push_back({"pytorch_ddp_8_hosts_step_ms", [=] { return hosts->pytorch_step(); }});
#endif
  return figures;
}

}  // namespace trireme
