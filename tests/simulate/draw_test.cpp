// Drawings are well-formed, show everything once, and keep to their page.
#include "trireme/draw.h"

#include "simulate/labels.h"
#include "simulate/svg.h"
#include "support/throws.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace trireme {
namespace {

using test::usage_error;

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text = {};
};

// Reads XML as the drawings have it. What is not well-formed fails the test.
class Reader {
 public:
  explicit Reader(const std::string& xml) : xml_(xml) {
    while (at_ < xml_.size() && !failed_) {
      if (xml_[at_] != '<') {
        read_text();
      } else if (xml_.compare(at_, 2, "</") == 0) {
        read_end();
      } else {
        read_begin();
      }
    }
    if (!open_.empty()) fail("not closed: " + open_.back());
  }

  std::vector<Element> elements;  // in the order they begin

 private:
  void fail(const std::string& what) {
    failed_ = true;
    ADD_FAILURE() << what << " at " << xml_.substr(at_, 80);
  }

  void check_escaped(const std::string& text) {
    if (text.find_first_of("<>\"") != std::string::npos) fail("not escaped: " + text);
    for (std::size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1)) {
      const std::string entity = text.substr(at, text.find(';', at) - at + 1);
      const bool known = std::set<std::string>{"&amp;", "&lt;", "&gt;", "&quot;"}.contains(entity);
      if (!known) fail("not an entity: " + entity);
    }
  }

  void read_text() {
    const std::size_t end = std::min(xml_.find('<', at_), xml_.size());
    const std::string text = xml_.substr(at_, end - at_);
    check_escaped(text);
    if (open_.empty() && text.find_first_not_of(" \n") != std::string::npos) fail("text outside");
    if (!elements.empty()) elements.back().text += text;
    at_ = end;
  }

  void read_end() {
    const std::size_t end = xml_.find('>', at_);
    const std::string name = xml_.substr(at_ + 2, end - at_ - 2);
    if (open_.empty() || open_.back() != name) return fail("closes what is not open: " + name);
    open_.pop_back();
    at_ = end + 1;
  }

  std::string read_name() {
    const std::size_t begin = at_;
    while (at_ < xml_.size() && (std::isalnum(static_cast<unsigned char>(xml_[at_])) != 0 || xml_[at_] == '-')) ++at_;
    return xml_.substr(begin, at_ - begin);
  }

  void read_begin() {
    ++at_;
    if (open_.empty() && !elements.empty()) return fail("a second root");
    Element element{read_name(), {}};
    open_.push_back(element.name);
    while (!failed_) {
      while (xml_[at_] == ' ') ++at_;
      if (xml_[at_] == '>' || xml_.compare(at_, 2, "/>") == 0) break;
      read_attribute(element);
    }
    elements.push_back(element);
    if (xml_[at_] == '/') open_.pop_back();
    at_ = xml_.find('>', at_) + 1;
  }

  void read_attribute(Element& element) {
    const std::string key = read_name();
    if (key.empty() || xml_.compare(at_, 2, "=\"") != 0) return fail("not an attribute");
    const std::size_t end = xml_.find('"', at_ + 2);
    if (end == std::string::npos) return fail("no end of an attribute");
    const std::string value = xml_.substr(at_ + 2, end - at_ - 2);
    check_escaped(value);
    if (!element.attributes.emplace(key, value).second) fail("twice the attribute " + key);
    at_ = end + 1;
  }

  const std::string& xml_;
  std::size_t at_ = 0;
  bool failed_ = false;
  std::vector<std::string> open_;
};

double number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  EXPECT_TRUE(!text.empty() && *end == '\0' && std::isfinite(value)) << "not a number: " << text;
  return value;
}

// The coordinates of a path of M, L, Q (pairs), H (x) and V (y).
void add_path(const std::string& data, std::vector<double>& xs, std::vector<double>& ys) {
  char command = 'M';
  bool is_x = true;
  for (const char* at = data.c_str(); *at != '\0';) {
    if (std::isalpha(static_cast<unsigned char>(*at)) != 0) {
      command = *at++;
      ASSERT_NE(std::string("MLQHV").find(command), std::string::npos) << data;
      is_x = command != 'V';
      continue;
    }
    char* end = nullptr;
    const double value = std::strtod(at, &end);
    ASSERT_TRUE(end != at && std::isfinite(value)) << data;
    (is_x ? xs : ys).push_back(value);
    if (command != 'H' && command != 'V') is_x = !is_x;
    at = end;
  }
}

class Drawing {
 public:
  explicit Drawing(const std::string& svg) : elements_(Reader(svg).elements) {
    EXPECT_FALSE(elements_.empty());
    EXPECT_EQ(elements_.front().name, "svg");
    EXPECT_EQ(elements_.front().attributes["xmlns"], "http://www.w3.org/2000/svg");
    check_coordinates();
  }

  const std::vector<Element>& elements() const { return elements_; }

  int count(const std::string& class_name) const {
    return static_cast<int>(std::count_if(elements_.begin(), elements_.end(), [&](const Element& element) {
      const auto found = element.attributes.find("class");
      return found != element.attributes.end() && found->second == class_name;
    }));
  }

  // How many texts there are that say this.
  int count_text(const std::string& text) const {
    return static_cast<int>(std::count_if(elements_.begin(), elements_.end(), [&](const Element& element) {
      return element.name == "text" && element.text.starts_with(text + '\n');
    }));
  }

 private:
  void check_coordinates() {
    const double width = number(elements_[0].attributes["width"]), height = number(elements_[0].attributes["height"]);
    EXPECT_EQ(elements_[0].attributes["viewBox"], fmt::format("0 0 {} {}", width, height));
    std::vector<double> xs, ys;
    for (Element& element : elements_) {
      for (const auto& [key, value] : element.attributes) {
        if (key == "x" || key == "x1" || key == "x2" || key == "cx") xs.push_back(number(value));
        if (key == "y" || key == "y1" || key == "y2" || key == "cy") ys.push_back(number(value));
        if (key == "d") add_path(value, xs, ys);
      }
      if (element.name != "rect") continue;
      const double wide = number(element.attributes["width"]), high = number(element.attributes["height"]);
      EXPECT_GE(wide, 0);
      EXPECT_GE(high, 0);
      xs.push_back(xs.back() + wide);
      ys.push_back(ys.back() + high);
    }
    EXPECT_GE(*std::min_element(xs.begin(), xs.end()), 0);
    EXPECT_LE(*std::max_element(xs.begin(), xs.end()), width);
    EXPECT_GE(*std::min_element(ys.begin(), ys.end()), 0);
    EXPECT_LE(*std::max_element(ys.begin(), ys.end()), height);
  }

  std::vector<Element> elements_;
};

struct Shown {
  Schedule schedule;
  std::vector<Delivery> deliveries;
};

Shown run(const Algorithm& algorithm, const Setting& setting, std::uint64_t bytes) {
  Shown run{make_schedule(algorithm, setting), {}};
  SimulateOptions options;
  options.bytes = bytes;
  options.deliveries = &run.deliveries;
  simulate(run.schedule, *make_switch(run.schedule.ranks(), Link{}), options);
  return run;
}

Drawing drawn(const Shown& run, const std::string& caption = "a caption") {
  return Drawing(draw_schedule(run.schedule, run.deliveries, caption));
}

TEST(DrawSchedule, ShowsEveryMessageOfEveryAlgorithmOnce) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const int ranks : {1, 2, 3, 6, 8, 16}) {
      if (!algorithm.accepts(ranks)) continue;
      for (const std::uint64_t bytes : {0, 1 << 16, 1 << 20}) {
        SCOPED_TRACE(fmt::format("{} {} ranks {} bytes", full_name(algorithm), ranks, bytes));
        const Setting setting{.ranks = ranks, .segments = algorithm.segmented ? 3 : 1, .servers = std::min(ranks, 2)};
        const Shown shown = run(algorithm, setting, bytes);
        const Drawing drawing = drawn(shown);
        const auto adds = std::count_if(shown.deliveries.begin(), shown.deliveries.end(),
                                        [](const Delivery& delivery) { return delivery.adds; });
        EXPECT_EQ(drawing.count("add"), adds);
        EXPECT_EQ(drawing.count("receive"), static_cast<int>(shown.deliveries.size()) - adds);
        EXPECT_EQ(drawing.count_text("a caption"), 1);
        for (int rank = 0; rank < shown.schedule.ranks(); ++rank) {
          const char* const what = rank < shown.schedule.workers() ? "rank" : "server";
          EXPECT_GE(drawing.count_text(fmt::format("{} {}", what, rank)) + drawing.count_text(fmt::format("{}", rank)),
                    1);
        }
      }
    }
  }
}

TEST(DrawSchedule, TellsAddsFromReceivesWithoutColour) {
  const Shown shown = run(find_algorithm("ring"), {.ranks = 4}, 1 << 20);
  const Drawing drawing = drawn(shown);
  int circles = 0, dashed = 0, solid = 0;
  for (const Element& element : drawing.elements()) {
    if (element.name == "circle") ++circles;
    if (element.name != "path" || element.attributes.at("d").find('Q') == std::string::npos) continue;
    ++(element.attributes.contains("stroke-dasharray") ? dashed : solid);
  }
  // One more of each in the legend.
  EXPECT_EQ(circles, 12 + 1);
  EXPECT_EQ(solid, 12 + 1);
  EXPECT_EQ(dashed, 12 + 1);
}

TEST(DrawSchedule, LabelsBlocksWhereThereIsRoom) {
  const Drawing ring = drawn(run(find_algorithm("ring"), {.ranks = 8}, 1 << 20));
  EXPECT_EQ(ring.count("block"), 8 * 7 * 2);
  const Drawing halving = drawn(run(find_algorithm("halving_doubling"), {.ranks = 8}, 1 << 20));
  EXPECT_EQ(halving.count_text("4..7"), 8);
  const Drawing moved = drawn(run(find_algorithm("all_to_all/direct"), {.ranks = 4}, 1 << 20));
  EXPECT_EQ(moved.count_text("1\u21920"), 1);
  const Drawing whole = drawn(run(find_algorithm("tree"), {.ranks = 8}, 1 << 20));
  EXPECT_EQ(whole.count("block"), 0);
  const Drawing crowded = drawn(run(find_algorithm("butterfly"), {.ranks = 32}, 1 << 20));
  EXPECT_EQ(crowded.count("block"), 0);
}

TEST(DrawSchedule, TitleSaysWhatAndHowLong) {
  EXPECT_EQ(drawn(run(find_algorithm("ring"), {.ranks = 3}, 0)).count_text("ring allreduce on 3 ranks: 80 us"), 1);
  EXPECT_EQ(drawn(run(find_algorithm("ring"), {.ranks = 1}, 0)).count_text("ring allreduce on 1 rank: 0 us"), 1);
  EXPECT_EQ(
      drawn(run(find_algorithm("broadcast/tree"), {.ranks = 2}, 0)).count_text("broadcast/tree on 2 ranks: 20 us"), 1);
  const Setting served{.ranks = 2, .servers = 1};
  EXPECT_EQ(
      drawn(run(find_algorithm("byteps"), served, 0)).count_text("byteps allreduce on 2 ranks and 1 server: 40 us"), 1);
}

TEST(DrawSchedule, OneRankHasNoMessages) {
  EXPECT_EQ(drawn(run(find_algorithm("ring"), {.ranks = 1}, 1 << 20)).count_text("no messages"), 1);
  EXPECT_EQ(drawn({}).count_text("no messages"), 1);
}

TEST(DrawSchedule, EscapesWhatOthersWrote) {
  Shown shown = run(find_algorithm("ring"), {.ranks = 2}, 0);
  shown.schedule.algorithm = R"(<"mine"> & yours)";
  const Drawing drawing = drawn(shown, "a < b && c > \"d\"\x01");
  EXPECT_EQ(drawing.count_text("&lt;&quot;mine&quot;&gt; &amp; yours allreduce on 2 ranks: 40 us"), 1);
  EXPECT_EQ(drawing.count_text("a &lt; b &amp;&amp; c &gt; &quot;d&quot; "), 1);
}

TEST(DrawSchedule, KeepsMessagesApartThatGoAtOnce) {
  const Ticks later{20'000'000};
  Shown shown{{.algorithm = "twins", .programs = std::vector<Program>(2, {.blocks = 3})}, {}};
  for (const int block : {0, 1, 2}) shown.deliveries.push_back({0, 1, block, block, false, Ticks{0}, later, later});
  const Drawing drawing = drawn(shown);
  std::set<std::string> paths;
  for (const Element& element : drawing.elements()) {
    const bool arrow = element.name == "path" && element.attributes.at("d").find('Q') != std::string::npos;
    if (arrow) paths.insert(element.attributes.at("d"));
  }
  EXPECT_EQ(paths.size(), 3U + 2U);  // and two in the legend
}

TEST(DrawSchedule, SurvivesTimesThatAreAllNothing) {
  Shown shown{{.algorithm = "instant", .programs = std::vector<Program>(2, {.blocks = 2})}, {}};
  shown.deliveries.push_back({0, 1, 0, 0, true, Ticks{0}, Ticks{0}, Ticks{0}});
  shown.deliveries.push_back({1, 0, 1, 1, false, Ticks{0}, Ticks{0}, Ticks{0}});
  EXPECT_EQ(drawn(shown).count("add"), 1);
}

// Times of alpha + bytes * beta, by hand.
Race hand_made(const std::vector<std::pair<double, double>>& costs, int sizes) {
  Race race{.collective = Collective::allreduce, .ranks = 4, .bytes = {}, .entries = {}, .winners = {}};
  for (int size = 0; size < sizes; ++size) race.bytes.push_back(std::uint64_t{1024} << size);
  for (const auto& [alpha, beta] : costs) {
    Race::Entry entry{fmt::format("runner_{}", race.entries.size()), {}, {}};
    for (const std::uint64_t bytes : race.bytes) entry.times.emplace_back(alpha + beta * static_cast<double>(bytes));
    entry.segments.assign(race.bytes.size(), 1);
    race.entries.push_back(entry);
  }
  for (std::size_t size = 0; size < race.bytes.size(); ++size) {
    const auto best = std::min_element(race.entries.begin(), race.entries.end(),
                                       [&](const auto& a, const auto& b) { return a.times[size] < b.times[size]; });
    race.winners.push_back(static_cast<int>(best - race.entries.begin()));
  }
  return race;
}

TEST(DrawRace, NamesEveryAlgorithmApart) {
  std::vector<std::pair<double, double>> costs(15, {2e-5, 1e-9});  // all the same
  costs[7] = {1e-5, 5e-9};
  const Race race = hand_made(costs, 12);
  const Drawing drawing(draw_race(race, "a caption"));
  EXPECT_EQ(drawing.count("winner") + drawing.count("loser"), 15);
  EXPECT_EQ(drawing.count_text("a caption"), 1);
  std::vector<double> heights;
  for (const Race::Entry& entry : race.entries) {
    for (const Element& element : drawing.elements()) {
      const bool name = element.text.starts_with(entry.algorithm + '\n') && !element.attributes.contains("class");
      if (element.name == "text" && name) heights.push_back(number(element.attributes.at("y")));
    }
  }
  ASSERT_EQ(heights.size(), race.entries.size());
  std::sort(heights.begin(), heights.end());
  for (std::size_t i = 1; i < heights.size(); ++i) EXPECT_GT(heights[i] - heights[i - 1], 14.5);
}

TEST(DrawRace, LinesCanBeToldApart) {
  const Drawing drawing(draw_race(hand_made(std::vector<std::pair<double, double>>(15, {2e-5, 1e-9}), 3), ""));
  std::set<std::string> styles;
  for (std::size_t i = 0; i + 2 < drawing.elements().size(); ++i) {
    const auto found = drawing.elements()[i].attributes.find("class");
    if (found == drawing.elements()[i].attributes.end()) continue;
    if (found->second != "winner" && found->second != "loser") continue;
    const auto& line = drawing.elements()[i + 2].attributes;  // after the tooltip
    styles.insert(line.at("stroke") + (line.contains("stroke-dasharray") ? line.at("stroke-dasharray") : ""));
  }
  EXPECT_EQ(styles.size(), 15U);
}

TEST(DrawRace, SaysWhoWinsWhere) {
  const Race race = hand_made({{1e-5, 4e-9}, {4e-5, 1e-9}, {9e-5, 9e-9}}, 8);
  const Drawing drawing(draw_race(race, ""));
  EXPECT_EQ(drawing.count("winner"), 2);
  EXPECT_EQ(drawing.count("loser"), 1);
  EXPECT_EQ(drawing.count("fastest"), 2);
  EXPECT_EQ(drawing.count_text("Fastest: runner_0 up to 8 KiB, then runner_1."), 1);
  EXPECT_EQ(drawing.count_text("allreduce on 4 ranks: time against bytes"), 1);
  EXPECT_GE(drawing.count_text("1 KiB"), 1);
  EXPECT_GE(drawing.count_text("100 us"), 1);
}

TEST(DrawRace, SurvivesOneSizeNoTimeAndNoBytes) {
  EXPECT_EQ(Drawing(draw_race(hand_made({{1e-5, 4e-9}}, 1), "")).count_text("Fastest: runner_0."), 1);
  EXPECT_EQ(Drawing(draw_race(hand_made({{0, 0}, {0, 0}}, 5), "")).count_text("Fastest: runner_0."), 1);
  Race race = hand_made({{1e-5, 4e-9}, {4e-5, 1e-9}}, 2);
  race.bytes = {0, 1};
  EXPECT_EQ(Drawing(draw_race(race, "")).count("winner"), 1);
  EXPECT_NE(usage_error([] { draw_race({}, ""); }).find("can't be drawn"), std::string::npos);
}

TEST(DrawRace, OfRealAlgorithms) {
  const Topology topology;
  const Race real =
      race({.topology = &topology, .setting = {.ranks = 8, .servers = 2}, .with_servers = true}, 1 << 10, 1 << 22);
  const Drawing drawing(draw_race(real, "on one switch"));
  for (const Race::Entry& entry : real.entries) EXPECT_GE(drawing.count_text(entry.algorithm), 1) << entry.algorithm;
}

TEST(Spread, KeepsOrderGapAndBounds) {
  const std::vector<double> wished{50, 10, 50, 49, 200, 52};
  const std::vector<double> places = spread(wished, 10, 0, 100);
  const std::vector<double> expected{45, 10, 55, 35, 100, 65};
  for (std::size_t i = 0; i < wished.size(); ++i) EXPECT_NEAR(places[i], expected[i], 1) << i;
}

TEST(PlaceOnArrows, NeverPutsOneLabelOnAnother) {
  const std::vector<Arrow> arrows(3, Arrow({0, 0}, {100, 100}));
  const std::vector<double> widths(3, 20.0);
  const auto places = place_on_arrows(arrows, widths, 12);
  for (std::size_t a = 0; a < places.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      ASSERT_TRUE(places[a] && places[b]);
      EXPECT_FALSE(Box::around(*places[a], 20, 12).overlaps(Box::around(*places[b], 20, 12)));
    }
  }
  const std::vector<Arrow> crowd(40, Arrow({0, 0}, {100, 100}));
  const auto none = place_on_arrows(crowd, std::vector<double>(40, 20.0), 12);
  EXPECT_TRUE(std::none_of(none.begin(), none.end(), [](const auto& place) { return place.has_value(); }));
}

}  // namespace
}  // namespace trireme
