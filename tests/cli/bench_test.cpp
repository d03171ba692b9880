// `trireme bench` as a user meets it: real ranks on small buffers, for a few repeats. Nothing is said about how fast.
#include "support/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {
namespace {

using Json = nlohmann::json;

Ran bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {TRIREME_PROGRAM, "bench"});
  return run(std::move(arguments));
}

// With few repeats, as JSON.
Json json_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--repeats", "4", "--rounds", "2", "--json"});
  const Ran ran = bench(std::move(arguments));
  EXPECT_EQ(ran.status, 0) << ran.err;
  return Json::parse(ran.out, nullptr, false);
}

void refuses(const std::vector<std::string>& arguments, const std::string& words) {
  const Ran ran = bench(arguments);
  EXPECT_EQ(ran.status, 2) << words << ": " << ran.err;
  EXPECT_NE(ran.err.find(words), std::string::npos) << words << ": " << ran.err;
  EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
  EXPECT_EQ(ran.out, "") << words;
}

void expect_measured(const Json& result) {
  EXPECT_GT(result["min_us"], 0) << result;
  EXPECT_GE(result["median_us"], result["min_us"]) << result;
  const double bandwidth = result["bytes"].get<double>() / result["median_us"].get<double>() * 1e6;
  EXPECT_NEAR(result["algorithm_bandwidth"], bandwidth, bandwidth * 1e-6) << result;
}

std::set<std::string> names_of(const std::string& collective) {
  const Ran ran = run({TRIREME_PROGRAM, "algorithms", "--collective", collective, "--json"});
  std::set<std::string> names;
  for (const Json& row : Json::parse(ran.out)) {
    const std::string name = row["algorithm"];
    names.insert(name.substr(name.find('/') + 1));
  }
  return names;
}

TEST(Bench, SaysWhatItHasMeasuredAndWhere) {
  const Json report = json_of({"allreduce", "-n", "2", "--transport", "shm", "--bytes", "4KiB,64KiB"});
  EXPECT_EQ(report["collective"], "allreduce");
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["transport"], "shm");
  EXPECT_GE(report["machine"]["cores"], 1);
  EXPECT_TRUE(report["machine"]["model"].is_string());
  EXPECT_EQ(report["peers"], Json::array());
  EXPECT_EQ(report["peers_left_out"], Json::array());
  std::vector<std::pair<int, std::string>> rows;
  const std::set<std::string> names = names_of("allreduce");
  for (const Json& result : report["results"]) {
    rows.emplace_back(result["bytes"], result["buffers"]);
    expect_measured(result);
    EXPECT_TRUE(names.contains(result["algorithm"])) << result;
    EXPECT_EQ(result["chosen"], true);
    EXPECT_EQ(result["ratio"], Json::object());
    EXPECT_DOUBLE_EQ(result["bus_bandwidth"], result["algorithm_bandwidth"]);  // 2(P-1)/P is 1 of two ranks.
  }
  EXPECT_EQ(rows, (std::vector<std::pair<int, std::string>>{
                      {4096, "window"}, {4096, "ordinary"}, {65536, "window"}, {65536, "ordinary"}}));
}

class EveryCollective : public testing::TestWithParam<std::string> {};

TEST_P(EveryCollective, IsTimedByEveryAlgorithmThatCanRun) {
  const bool barrier = GetParam() == "barrier";
  std::vector<std::string> arguments{GetParam(), "-n", "3", "--algorithm", "all"};
  if (!barrier) arguments.insert(arguments.end(), {"--bytes", "1000", "--buffers", "window"});
  const Json report = json_of(arguments);
  std::set<std::string> timed;
  int chosen = 0;
  for (const Json& result : report["results"]) {
    timed.insert(result["algorithm"]);
    chosen += result["chosen"] == true ? 1 : 0;
    expect_measured(result);
    EXPECT_EQ(result["buffers"], barrier ? "none" : "window");
  }
  EXPECT_EQ(chosen, 1);
  // byteps needs further ranks that only serve, swing an even number.
  const std::set<std::string> cannot{"byteps", "swing"};
  for (const std::string& name : names_of(GetParam())) {
    EXPECT_TRUE(timed.contains(name) != (GetParam() == "allreduce" && cannot.contains(name))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryCollective,
                         testing::Values("allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "gather",
                                         "scatter", "all_to_all", "barrier"),
                         [](const auto& instance) { return instance.param; });

TEST(Bench, TakesTcpOrdinaryBuffersAndNamedAlgorithms) {
  const Json report =
      json_of({"allreduce", "-n", "3", "--transport", "tcp", "--bytes", "1KiB..8KiB", "--algorithm", "ring,tree"});
  std::vector<std::string> rows;
  for (const Json& result : report["results"]) {
    rows.push_back(fmt::format("{} {} {}", result["bytes"].get<int>(), result["buffers"].get<std::string>(),
                               result["algorithm"].get<std::string>()));
    EXPECT_NEAR(result["bus_bandwidth"].get<double>() / result["algorithm_bandwidth"].get<double>(), 4.0 / 3, 1e-9);
  }
  EXPECT_EQ(rows, (std::vector<std::string>{"1024 ordinary ring", "1024 ordinary tree", "4096 ordinary ring",
                                            "4096 ordinary tree", "8192 ordinary ring", "8192 ordinary tree"}));
}

TEST(Bench, PrintsATableAndDrawsARace) {
  const TemporaryFolder folder;
  const std::string picture = folder / "race.svg";
  const Ran ran = bench({"broadcast", "-n", "2", "--bytes", "64,256", "--algorithm", "all", "--repeats", "4",
                         "--rounds", "2", "--svg", picture});
  EXPECT_EQ(ran.status, 0) << ran.err;
  for (const std::string words :
       {"broadcast on 2 ranks", "median us", "bus GB/s", "256 B", "tree", "ordinary", " *", "fastest"}) {
    EXPECT_NE(ran.out.find(words), std::string::npos) << words << " is not in " << ran.out;
  }
  const std::string svg = read_whole(picture);
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_NE(svg.find("tree, window"), std::string::npos);
  EXPECT_NE(svg.find("Measured"), std::string::npos);
}

TEST(Bench, StandsBesidePeersThatAreBuilt) {
  for (const std::string peer : {"openmpi", "mpich", "gloo"}) {
    const std::string transport = peer == "gloo" ? "tcp" : "shm";
    const std::vector<std::string> arguments{"allreduce", "-n",   "2",         "--transport", transport,
                                             "--bytes",   "4KiB", "--against", peer};
    if (!std::filesystem::exists(std::filesystem::path(TRIREME_PEERS) / (peer + "_collective"))) {
      refuses(arguments, "make bench");
      continue;
    }
    const Json report = json_of(arguments);
    ASSERT_EQ(report["peers"].size(), 1U) << report;
    EXPECT_EQ(report["peers"][0]["name"], peer);
    EXPECT_EQ(report["peers"][0]["bytes"], 4096);
    for (const Json& result : report["results"]) {
      const double ratio = report["peers"][0]["median_us"].get<double>() / result["median_us"].get<double>();
      EXPECT_NEAR(result["ratio"][peer], ratio, ratio * 1e-6);
    }
  }
}

// What the report says of peers that did not take part.
std::map<std::string, std::string> left_out_of(const Json& report) {
  std::map<std::string, std::string> reasons;
  for (const Json& one : report["peers_left_out"]) reasons[one["name"]] = one["why"];
  return reasons;
}

TEST(Bench, GoesOnWithoutPeersThatCantTakePart) {
  // Whatever is built: gloo has no shared memory, and the probe nothing else.
  const std::vector<std::string> arguments{"allreduce", "-n", "2", "--bytes", "4KiB,8KiB", "--against", "gloo,probe"};
  for (const auto& [transport, peer, why] : std::vector<std::array<std::string, 3>>{
           {"shm", "gloo", "gloo has no shared memory"}, {"tcp", "probe", "probe has nothing but shared memory"}}) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--transport", transport, "--repeats", "4", "--rounds", "2"});
    const Ran table = bench(all);
    EXPECT_EQ(table.status, 0) << table.err;
    EXPECT_NE(table.err.find("left out: " + why), std::string::npos) << table.err;
    EXPECT_EQ(table.out.find("vs " + peer), std::string::npos) << table.out;

    all.emplace_back("--json");
    const Ran ran = bench(all);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const Json report = Json::parse(ran.out, nullptr, false);
    const auto reasons = left_out_of(report);
    ASSERT_TRUE(reasons.contains(peer)) << report;
    EXPECT_NE(reasons.at(peer).find(why), std::string::npos) << report;
    EXPECT_FALSE(report["results"].empty());
    // The other one is measured at both sizes, or not built.
    const std::string other = peer == "gloo" ? "probe" : "gloo";
    EXPECT_EQ(report["peers"].size(), reasons.contains(other) ? 0U : 2U) << report;
    for (const Json& one : report["peers"]) EXPECT_EQ(one["name"], other);
  }
}

TEST(Bench, GoesOnWithoutPeersThatRefuse) {
  // gloo starts, but has no reduce_scatter; where it is not built, it does not start.
  const Json report =
      json_of({"reduce_scatter", "-n", "2", "--transport", "tcp", "--bytes", "4KiB,8KiB", "--against", "gloo,openmpi"});
  EXPECT_TRUE(left_out_of(report).contains("gloo")) << report;
  EXPECT_EQ(report["results"].size(), 2U) << report;
  EXPECT_EQ(report["peers"].size(), left_out_of(report).contains("openmpi") ? 0U : 2U) << report;
}

TEST(Bench, RefusesWhatMakesNoSense) {
  refuses({"alreduce", "-n", "2"}, "did you mean 'allreduce'?");
  refuses({"allreduce"}, "--ranks is required");
  refuses({"allreduce", "-n", "0"}, "-n 0 is not 1 to");
  refuses({"allreduce", "-n", "2", "--transport", "pigeon"}, "there are shm, tcp, auto");
  refuses({"allreduce", "-n", "2", "--algorithm", "rong"}, "did you mean 'ring'?");
  refuses({"allreduce", "-n", "2", "--algorithm", "byteps"}, "extra ranks");
  refuses({"allreduce", "-n", "2", "--algorithm", "ring,ring"}, "ring twice");
  refuses({"allreduce", "-n", "2", "--bytes", "6"}, "not whole float32s");
  refuses({"allreduce", "-n", "2", "--bytes", "4KiB..1KiB"}, "upward");
  refuses({"allreduce", "-n", "2", "--bytes", "4,,8"}, "empty place");
  refuses({"allreduce", "-n", "2", "--buffers", "windw"}, "did you mean 'window'?");
  refuses({"allreduce", "-n", "2", "--against", "opnmpi"}, "did you mean 'openmpi'?");
  refuses({"allreduce", "-n", "2", "--transport", "shm", "--against", "gloo"}, "no shared memory");
  refuses({"allreduce", "-n", "2", "--repeats", "0"}, "--repeats 0");
  refuses({"allreduce", "-n", "2", "--rounds", "0"}, "--rounds 0");
  refuses({"allreduce", "-n", "2", "--svg", "/there/is/no/such.svg"}, "can't be written");
  refuses({"barrier", "-n", "2", "--bytes", "4"}, "a barrier has no bytes");
}

TEST(Bench, HelpShowsExamples) {
  const Ran ran = bench({"--help"});
  EXPECT_EQ(ran.status, 0);
  for (const std::string words : {"trireme bench allreduce", "--against", "openmpi", "probe", "--json", "--svg"}) {
    EXPECT_NE(ran.out.find(words), std::string::npos) << words;
  }
}

// The processes that have this one as their parent.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", parent))) {
    std::istringstream ids(read_whole((task.path() / "children").string()));
    for (pid_t id = 0; ids >> id;) children.push_back(id);
  }
  return children;
}

bool is_there(pid_t id) { return ::kill(id, 0) == 0; }

// A run that would take long, with its output in a file. Its ranks are there when the constructor returns.
class LongRun {
 public:
  LongRun() {
    child_ = ::fork();
    if (child_ == 0) {
      const std::string command =
          fmt::format("exec {} bench allreduce -n 2 --bytes 4KiB --repeats 1000000 --rounds 1000 >{} 2>&1",
                      TRIREME_PROGRAM, folder_ / "output");
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 1000 && ranks_.size() < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ranks_ = children_of(child_);
    }
  }

  ~LongRun() {
    if (child_ < 0) return;
    ::kill(child_, SIGTERM);
    wait();
  }
  LongRun(const LongRun&) = delete;
  LongRun& operator=(const LongRun&) = delete;

  pid_t id() const { return child_; }
  const std::vector<pid_t>& ranks() const { return ranks_; }

  // Its exit status; -1 if it was killed.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string output() const { return read_whole(folder_ / "output"); }

 private:
  TemporaryFolder folder_;
  pid_t child_ = -1;
  std::vector<pid_t> ranks_;
};

TEST(Bench, EndsAllThatItHasStartedWhenItIsInterrupted) {
  LongRun bench;
  ASSERT_EQ(bench.ranks().size(), 2U) << bench.output();
  ::kill(bench.id(), SIGTERM);
  EXPECT_EQ(bench.wait(), 128 + SIGTERM);
  EXPECT_NE(bench.output().find("all ranks have been ended"), std::string::npos) << bench.output();
  for (const pid_t rank : bench.ranks()) EXPECT_FALSE(is_there(rank)) << rank;
}

TEST(Bench, SaysWhichRankIsGoneAndEndsTheOthers) {
  LongRun bench;
  ASSERT_EQ(bench.ranks().size(), 2U) << bench.output();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ::kill(bench.ranks()[1], SIGKILL);
  EXPECT_EQ(bench.wait(), 2);
  EXPECT_NE(bench.output().find("trireme ended before it answered"), std::string::npos) << bench.output();
  for (const pid_t rank : bench.ranks()) EXPECT_FALSE(is_there(rank)) << rank;
}

}  // namespace
}  // namespace trireme
