// The program as a user meets it: what it prints, what it refuses, and with which exit status.
#include "support/run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace trireme {
namespace {

using Json = nlohmann::json;

Ran trireme(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), TRIREME_PROGRAM);
  return run(std::move(arguments));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Json json_of(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const Ran ran = trireme(std::move(arguments));
  EXPECT_EQ(ran.status, 0) << ran.err;
  return Json::parse(ran.out);
}

// Wrong use: status 2, one line on stderr that contains `word`, nothing on stdout.
void refuses(const std::vector<std::string>& arguments, const std::string& word) {
  const Ran ran = trireme(arguments);
  std::string command;
  for (const std::string& argument : arguments) command += argument + " ";
  EXPECT_EQ(ran.status, 2) << command << ran.err;
  EXPECT_EQ(lines_of(ran.err).size(), 1U) << command << ran.err;
  EXPECT_NE(ran.err.find(word), std::string::npos) << command << ran.err;
  EXPECT_EQ(ran.out, "") << command;
}

TEST(Help, EveryCommandShowsAnExample) {
  const Ran all = trireme({"--help"});
  EXPECT_EQ(all.status, 0);
  for (const std::string command : {"algorithms", "plan", "verify", "simulate", "choose", "race"}) {
    EXPECT_NE(all.out.find("  " + command), std::string::npos) << command;
    const Ran ran = trireme({command, "--help"});
    EXPECT_EQ(ran.status, 0);
    EXPECT_NE(ran.out.find("Example"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("trireme " + command), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("--json"), std::string::npos) << ran.out;
  }
}

TEST(Algorithms, ListsEveryRow) {
  const Json rows = json_of({"algorithms"});
  std::set<std::string> names;
  for (const Json& row : rows) names.insert(row["algorithm"]);
  for (const std::string name : {"ring", "swing", "blink", "byteps", "broadcast/tree", "barrier/dissemination"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(lines_of(trireme({"algorithms"}).out).size(), rows.size() + 1);
  EXPECT_LT(json_of({"algorithms", "--collective", "gather"}).size(), rows.size());
}

TEST(Plan, WritesWhatVerifyProves) {
  const TemporaryFolder folder;
  const Ran plan = trireme({"plan", "ring", "--ranks", "5"});
  ASSERT_EQ(plan.status, 0) << plan.err;
  const std::string file = folder.write("f", plan.out);
  const Ran proof = trireme({"verify", file});
  EXPECT_EQ(proof.status, 0) << proof.err;
  EXPECT_EQ(lines_of(proof.out).back(), "1 proven, 0 failed");

  const std::vector<std::string> lines = lines_of(plan.out);
  int adds = 0;
  for (std::size_t dropped = 0; dropped < lines.size(); ++dropped) {
    if (lines[dropped].find("add") == std::string::npos) continue;
    ++adds;
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i) text += i == dropped ? "" : lines[i] + "\n";
    const Ran broken = trireme({"verify", folder.write("broken", text)});
    EXPECT_EQ(broken.status, 1) << "without line " << dropped;
    for (const std::string word : {"rank", "step", "block"})
      EXPECT_NE(broken.err.find(word), std::string::npos) << broken.err;
    EXPECT_EQ(lines_of(broken.out).back(), "0 proven, 1 failed");
  }
  EXPECT_EQ(adds, 20);
}

TEST(Plan, ShowsOneRankOrDrawsOrGivesJson) {
  const TemporaryFolder folder;
  const Ran one = trireme({"plan", "broadcast/tree", "--ranks", "6", "--root", "2", "--rank", "2"});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out.find("rank 2\n  send"), 0U) << one.out;
  const Json json = json_of({"plan", "byteps", "--ranks", "3", "--servers", "2"});
  EXPECT_EQ(json["programs"].size(), 5U);
  EXPECT_EQ(json["servers"], 2);
  const Ran drawing = trireme({"plan", "torus", "--ranks", "6", "--rows", "3", "--svg", folder / "a.svg"});
  EXPECT_EQ(drawing.status, 0) << drawing.err;
  EXPECT_EQ(read_whole(folder / "a.svg").find("<svg"), 0U);
  const std::string file = folder.write("mine.txt", trireme({"plan", "swing", "--ranks", "4"}).out);
  EXPECT_EQ(trireme({"plan", file, "--svg", folder / "b.svg"}).status, 0);
}

TEST(Verify, ProvesAllAndCounts) {
  const Ran ran = trireme({"verify", "all", "--ranks", "1..9"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  const std::string last = lines_of(ran.out).back();
  EXPECT_NE(last.find(" proven, 0 failed"), std::string::npos) << last;
  EXPECT_GT(std::stoi(last), 300);
  const Json json = json_of({"verify", "fully_connected", "--ranks", "3"});
  EXPECT_EQ(json["algorithms"][0]["same_bits"], false);
  EXPECT_EQ(json["proven"], 1);
}

TEST(Simulate, GivesOneObjectAnAlgorithm) {
  const Json all = json_of({"simulate", "all", "--ranks", "16", "--bytes", "1MiB", "--alpha", "20us", "--bandwidth",
                            "10Gbit", "--reduce-rate", "8GB"});
  ASSERT_EQ(all.size(), 15U);
  for (const Json& one : all) {
    EXPECT_GT(one["seconds"].get<double>(), 0);
    EXPECT_GE(one["rounds"].get<int>(), 1);
    EXPECT_GT(one["bytes_per_rank"].get<int>(), 0);
    EXPECT_TRUE(one["algorithm"].is_string());
  }
  const Json ring = json_of({"simulate", "ring", "--ranks", "16", "--bytes", "1MiB"});
  EXPECT_NEAR(ring["seconds"].get<double>(), 30 * 20e-6 + 1.875 * (1 << 20) / 1.25e9 + 0.9375 * (1 << 20) / 8e9, 1e-5);
  EXPECT_EQ(ring["rounds"], 30);
}

TEST(Simulate, LeavesOutWhatCantRunAndSaysSo) {
  const Ran ran = trireme({"simulate", "all", "--ranks", "6", "--json"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(Json::parse(ran.out).size(), 14U);
  EXPECT_NE(ran.err.find("swing"), std::string::npos) << ran.err;
  EXPECT_EQ(lines_of(ran.err).size(), 1U) << ran.err;
}

TEST(Simulate, TakesFilesAndTopologies) {
  const TemporaryFolder folder;
  const std::string program = folder.write("ring.txt", trireme({"plan", "ring", "--ranks", "4"}).out);
  const Json from_file = json_of({"simulate", program});
  EXPECT_EQ(from_file["seconds"], json_of({"simulate", "ring", "--ranks", "4"})["seconds"]);
  EXPECT_EQ(from_file["rounds"], 6);
  const std::string torus = folder.write("torus.json", R"({"kind": "torus", "rows": 2, "columns": 4})");
  EXPECT_GT(json_of({"simulate", "swing", "--ranks", "8", "--topology", torus})["seconds"].get<double>(), 0);
  refuses({"simulate", "ring", "--ranks", "9", "--topology", torus}, "8 ranks");
}

TEST(Choose, SaysWhatWhyAndWhatOthersTake) {
  const Json choice = json_of({"choose", "--ranks", "16", "--bytes", "1MiB"});
  EXPECT_EQ(choice["policy"], "trireme");
  EXPECT_FALSE(choice["reason"].get<std::string>().empty());
  ASSERT_EQ(choice["policies"].size(), 3U);
  for (const Json& policy : choice["policies"]) EXPECT_GE(policy["seconds"], choice["seconds"]);
  const Json theirs = json_of({"choose", "--ranks", "16", "--bytes", "1MiB", "--policy", "openmpi"});
  EXPECT_EQ(theirs["algorithm"], "halving_doubling");
  EXPECT_EQ(trireme({"choose", "--ranks", "16", "--bytes", "1MiB"}).status, 0);
}

TEST(Race, DrawsWhoWinsWhere) {
  const TemporaryFolder folder;
  const Ran ran = trireme({"race", "--ranks", "5", "--to", "1MiB", "--svg", folder / "race.svg"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_FALSE(lines_of(ran.out).empty());
  const std::string drawing = read_whole(folder / "race.svg");
  for (const std::string name : {"ring", "butterfly", "tree"}) EXPECT_NE(drawing.find(name), std::string::npos);
  EXPECT_EQ(json_of({"race", "--ranks", "3", "--to", "8KiB"})["bytes"].size(), 4U);
}

TEST(BadInput, IsRefusedInOneLine) {
  refuses({}, "--help");
  refuses({"simulat"}, "simulate");
  refuses({"plan"}, "algorithm");
  refuses({"plan", "rign", "--ranks", "4"}, "did you mean 'ring'?");
  refuses({"plan", "ring", "--ranks", "4", "--rank", "1", "--svg", "ring.svg"}, "a drawing has all ranks");
  refuses({"plan", "ring"}, "--ranks");
  refuses({"plan", "ring", "--ranks", "0"}, "beyond reason");
  refuses({"plan", "ring", "--ranks", "-4"}, "beyond reason");
  refuses({"plan", "ring", "--ranks", "four"}, "four");
  refuses({"plan", "ring", "--ranks", "99999999999999999999"}, "beyond reason");
  refuses({"plan", "ring", "--ranks", "1000000"}, "beyond reason");
  refuses({"plan", "ring", "--ranks", "4", "--rank", "4"}, "no rank 4");
  refuses({"plan", "ring", "--ranks", "4", "--colour"}, "--colour");
  refuses({"plan", "swing", "--ranks", "6"}, "powers of two");
  refuses({"plan", "torus", "--ranks", "6", "--rows", "4"}, "divide");
  refuses({"plan", "broadcast/tree", "--ranks", "6", "--root", "6"}, "root");
  refuses({"plan", "byteps", "--ranks", "6", "--servers", "7"}, "servers");
  refuses({"plan", "chain", "--ranks", "6", "--segments", "0"}, "segments");
  refuses({"plan", "ring", "--ranks", "6", "--segments", "2"}, "--segments");
  refuses({"simulate", "ring", "--ranks", "6", "--servers", "2"}, "--servers");
  refuses({"simulate", "ring", "--ranks", "6", "--rows", "2"}, "--rows");
  refuses({"choose", "--ranks", "6", "--bytes", "1KiB", "--segments", "2"}, "segments itself");
  refuses({"race", "--ranks", "6", "--collective", "barrier"}, "barrier");
  refuses({"verify", "ring", "--ranks", "0..4"}, "beyond reason");
  refuses({"verify", "ring", "--ranks", "8..4"}, "empty");
  refuses({"verify", "no_such_file.txt"}, "no_such_file");
  refuses({"verify", "swing", "--ranks", "5..7"}, "powers of two");
  refuses({"verify", "ring", "--ranks", "100000"}, "beyond reason");
  refuses({"simulate", "all", "--ranks", "0"}, "beyond reason");
  refuses({"simulate", "ring", "--ranks", "4", "--bytes", "much"}, "much");
  refuses({"simulate", "ring", "--ranks", "4", "--bytes", "-1"}, "-1");
  refuses({"simulate", "ring", "--ranks", "4", "--alpha", "20"}, "20");
  refuses({"simulate", "ring", "--ranks", "4", "--bandwidth", "0Gbit"}, "0Gbit");
  refuses({"simulate", "ring", "--ranks", "4", "--topology", "nowhere.json"}, "nowhere.json");
  refuses({"choose", "--ranks", "4"}, "--bytes");
  refuses({"choose", "--ranks", "4", "--bytes", "1KiB", "--policy", "opnmpi"}, "openmpi");
  refuses({"choose", "--ranks", "4", "--bytes", "1KiB", "--collective", "gather", "--policy", "mpich"}, "allreduce");
  refuses({"algorithms", "--collective", "allredcue"}, "allreduce");
  refuses({"race", "--ranks", "4", "--from", "1MiB", "--to", "1KiB"}, "go up");
}

TEST(BadInput, LeavesNothingBehind) {
  const TemporaryFolder folder;
  refuses({"plan", "ring", "--ranks", "4", "--svg", folder / "no/such/folder.svg"}, "can't be written");
  refuses({"race", "--ranks", "4", "--svg", folder / "no/such/folder.svg"}, "can't be written");
  refuses({"plan", "rign", "--ranks", "4", "--svg", folder / "x.svg"}, "ring");
  EXPECT_TRUE(folder.empty());
  refuses({"plan", "ring", "--ranks", "4", "--svg", folder / "."}, "can't be written");
  EXPECT_TRUE(folder.empty());
}

TEST(Output, FollowsLinksAndKeepsThem) {
  const TemporaryFolder folder;
  const std::string real = folder.write("real.svg", "old");
  std::filesystem::create_symlink(real, folder / "link.svg");
  EXPECT_EQ(trireme({"plan", "ring", "--ranks", "3", "--svg", folder / "link.svg"}).status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.svg"));
  EXPECT_EQ(read_whole(real).find("<svg"), 0U);
  const Ran ran = trireme({"plan", "ring", "--ranks", "3", "--svg", "/dev/stdout"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out.find("<svg"), 0U);
}

TEST(Simulate, RefusesTimesBeyondItsClock) {
  refuses({"simulate", "ring", "--ranks", "4", "--bytes", "1TB", "--bandwidth", "1B", "--json"}, "clock");
  refuses({"simulate", "chain", "--ranks", "4096", "--alpha", "3600s", "--json"}, "clock");
}

TEST(BadInput, MalformedFilesNameLineAndColumn) {
  const TemporaryFolder folder;
  const std::string good = trireme({"plan", "ring", "--ranks", "3"}).out;
  refuses({"verify", folder.write("a", good + "  sned 0 to 1\n")}, "a:");
  refuses({"verify", folder.write("b", "ranks 2\nblocks 1\nrank 0\n  send 7 to 1\nrank 1\n")}, "b:4:8:");
  refuses({"verify", folder.write("c", "")}, "c:");
  const Ran wrong = trireme({"simulate", folder.write("d", "ranks 2\nblocks 1\nrank 0\n send 0 to 1\nrank 1\n")});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_NE(wrong.err.find("wrong"), std::string::npos) << wrong.err;
  refuses({"verify", folder.write("g", good), "--ranks", "3"}, "says its ranks");
  refuses({"simulate", folder.write("g", good), "--collective", "broadcast"}, "--collective");
  const std::string graph = R"({"kind": "graph", "ranks": 3, "links": [{"between": [0, 1], "bandwidth": "1GB"}]})";
  refuses({"simulate", "ring", "--ranks", "3", "--topology", folder.write("e.json", graph)}, "not connected");
  const std::string negative = R"({"kind": "graph", "ranks": 2, "links": [{"between": [0, 1], "bandwidth": -1}]})";
  refuses({"simulate", "ring", "--ranks", "2", "--topology", folder.write("f.json", negative)}, "-1");
}

TEST(Output, HasNoProgressBarInAPipe) {
  const Ran ran = trireme({"race", "--ranks", "24", "--to", "64MiB"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
}

}  // namespace
}  // namespace trireme
