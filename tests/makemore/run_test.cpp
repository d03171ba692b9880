// examples/makemore as a user meets it: on ranks of its own, compared with one process, recorded.
#include "support/run.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace trireme {
namespace {

using nlohmann::json;

Ran run_makemore(int ranks, std::vector<std::string> options) {
  std::vector<std::string> all{TRIREME_PROGRAM, "run", "-n", std::to_string(ranks), TRIREME_MAKEMORE};
  all.insert(all.end(), options.begin(), options.end());
  return run(all);
}

// Few enough letters for several epochs, so that what is left of one is passed over.
std::string words_of_two_letters(const TemporaryFolder& folder) {
  std::string text;
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'k'; ++b) text += {a, b, '\n'};
  }
  return folder.write("words", text);
}

// The number in the last line.
double difference_in(const std::string& out) {
  const std::string words = "largest difference to one process: ";
  const std::size_t at = out.rfind(words);
  if (at == std::string::npos || out.find('\n', at) != out.size() - 1) return -1;
  return std::stod(out.substr(at + words.size()));
}

TEST(MakemoreProgram, LearnsWhatOneProcessLearns) {
  const TemporaryFolder folder;
  for (const int ranks : {1, 3}) {
    const Ran ran = run_makemore(ranks, {"--steps", "30", "--batch", "16", "--bucket-bytes", "4KiB", "--check",
                                         "--text", words_of_two_letters(folder)});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_GE(difference_in(ran.out), 0) << ran.out;
    EXPECT_LE(difference_in(ran.out), 1e-10);
    EXPECT_NE(ran.err.find("step 30/30  loss "), std::string::npos) << ran.err;
  }
}

TEST(MakemoreProgram, Records) {
  const TemporaryFolder folder;
  const Ran ran = run_makemore(2, {"--steps", "12", "--check", "--quiet", "--record", folder / "deep/folder",
                                   "--bucket-bytes", "4KiB", "--text", words_of_two_letters(folder)});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.err, "");

  const json losses = json::parse(read_whole(folder / "deep/folder/loss.json"));
  EXPECT_EQ(losses.at("losses").size(), 12);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(losses.at("losses").at(i).get<double>(), losses.at("losses_in_one_process").at(i).get<double>(), 1e-10);
  }

  // Of each rank: which spans there are, and how often.
  const json trace = json::parse(read_whole(folder / "deep/folder/trace.json"));
  std::map<int, std::map<std::string, int>> spans;
  std::map<int, std::pair<double, double>> third_step;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid");
    const std::string kind = event.at("cat") == "phase" ? event.at("name") : event.at("cat");
    ++spans[rank][kind];
    EXPECT_GE(event.at("ts").get<double>(), 0);
    EXPECT_GE(event.at("dur").get<double>(), 0);
    const double begin = event.at("ts");
    if (event.at("name") == "step 3") third_step[rank] = {begin, begin + event.at("dur").get<double>()};
  }
  ASSERT_EQ(spans.size(), 2);
  for (const auto& [rank, count] : spans) {
    for (const char* const phase : {"step", "batch", "forward", "backward", "waiting", "optimiser"}) {
      EXPECT_EQ(count.contains(phase) ? count.at(phase) : 0, 12) << "rank " << rank << ", " << phase;
    }
    EXPECT_GE(count.at("reduction"), 3 * 12);
    EXPECT_EQ(count.at("exchange"), 2 * 12) << "batch norm's statistics, in forward and backward";
  }
  // Clocks are one: nobody ends a step before the other has begun it.
  EXPECT_LT(third_step[0].first, third_step[1].second);
  EXPECT_LT(third_step[1].first, third_step[0].second);
}

// A span as Perfetto reads it: in nanoseconds, cut to whole ones.
struct Slice {
  std::int64_t begin = 0, end = 0;
  std::string name;
};

Slice slice_of(const json& event) {
  const auto nanoseconds = [](const json& value) { return static_cast<std::int64_t>(value.get<double>() * 1000.0); };
  const std::int64_t begin = nanoseconds(event.at("ts"));
  return {begin, begin + nanoseconds(event.at("dur")), event.at("name")};
}

// Spans of a track lie in each other or apart; Perfetto drops others.
void expect_nested(std::vector<Slice> slices) {
  std::ranges::stable_sort(slices, {}, &Slice::begin);
  std::vector<Slice> open;
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back().end <= slice.begin) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(slice.end, open.back().end)
          << slice.name << " at " << slice.begin << " ns begins within " << open.back().name << " and ends after it";
    }
    open.push_back(slice);
  }
}

TEST(MakemoreProgram, TraceIsWholeForPerfetto) {
  const TemporaryFolder folder;
  const Ran ran = run_makemore(3, {"--steps", "40", "--quiet", "--record", folder / "record", "--bucket-bytes", "4KiB",
                                   "--text", words_of_two_letters(folder)});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  using Track = std::pair<int, int>;  // process, thread
  std::map<Track, std::vector<Slice>> tracks;
  std::map<int, std::string> processes;
  std::map<Track, std::string> threads;
  const json trace = json::parse(read_whole(folder / "record/trace.json"));
  for (const json& event : trace.at("traceEvents")) {
    const std::string name = event.at("name");
    EXPECT_FALSE(name.empty());
    ASSERT_TRUE(event.at("pid").is_number_integer() && event.at("tid").is_number_integer()) << event;
    const Track track(event.at("pid"), event.at("tid"));
    if (event.at("ph") == "X") {
      EXPECT_GE(event.at("ts").get<double>(), 0) << event;
      EXPECT_GE(event.at("dur").get<double>(), 0) << event;
      tracks[track].push_back(slice_of(event));
    } else {
      ASSERT_EQ(event.at("ph"), "M") << event;
      if (name == "process_name") processes[track.first] = event.at("args").at("name");
      if (name == "thread_name") threads[track] = event.at("args").at("name");
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0"}, {1, "rank 1"}, {2, "rank 2"}}));
  EXPECT_GE(tracks.size(), 3 * 4);
  for (const auto& [track, slices] : tracks) {
    SCOPED_TRACE("process " + std::to_string(track.first) + ", thread " + std::to_string(track.second));
    EXPECT_TRUE(processes.contains(track.first));
    EXPECT_NE(threads[track], "");
    expect_nested(slices);
  }
}

TEST(MakemoreProgram, ReportNeedsNothingElse) {
  const TemporaryFolder folder;
  const Ran ran = run_makemore(
      2, {"--steps", "3", "--quiet", "--record", folder / "record", "--text", words_of_two_letters(folder)});
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const std::string page = read_whole(folder / "record/report.html");
  for (const char* const reference : {"http", "//", "src=", "url(", "@import", "<script"}) {
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  }
  for (const char* const part :
       {"id=\"loss\"", "id=\"step\"", "id=\"words\"", "id=\"algorithm\"", "rank 1", "</html>"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

TEST(MakemoreProgram, StopsAtALossThatIsNotFinite) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::string& steps, const std::string& when) {
    // With --check it is in float64. The rates are so high that the losses themselves overflow in their sum: infinite
    // products that meet within a matrix product give NaN on some processors only, where products are rounded.
    for (const auto& [rate, option] : {std::pair("1e+308", "--check"), std::pair("1e+38", "--quiet")}) {
      const Ran ran =
          run_makemore(2, {"--rate", rate, "--steps", steps, option, "--text", words_of_two_letters(folder)});
      EXPECT_EQ(ran.status, 1);
      EXPECT_NE(ran.err.find("makemore: " + when + " the loss is not finite: give a smaller --rate than " + rate),
                std::string::npos)
          << ran.err;
      EXPECT_EQ(ran.err.find("multinomial"), std::string::npos) << ran.err;
    }
  };
  expect("1", "after step 1");
  expect("2", "in step 2");
  expect("300", "in step 2");  // where losses are looked at once in a while
}

TEST(MakemoreProgram, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const auto complaint = [&](std::vector<std::string> options) {
    const Ran ran = run_makemore(2, std::move(options));
    EXPECT_NE(ran.status, 0);
    return ran.err;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(complaint({"--steps", "0"}), "makemore: --steps: ");
  has(complaint({"--bucket-bytes", "0"}), "a bucket of 0 bytes holds nothing");
  has(complaint({"--rate", "nan"}), "--rate takes a number above 0");
  has(complaint({"--text", folder / "absent"}), "can't be opened");
  has(complaint({"--batch", "100000", "--text", words_of_two_letters(folder)}), "too few for one batch of 100000");
  has(complaint({"--record", folder.write("file", "") + "/folder"}), "can't be made");
}

}  // namespace
}  // namespace trireme
