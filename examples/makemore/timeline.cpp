#include "timeline.h"

#include "trireme/json_objects.h"
#include "trireme/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace makemore {
namespace {

using nlohmann::json;

// In the order of a step.
constexpr std::array<std::pair<const char*, Span StepSpans::*>, 5> kPhases = {{{"batch", &StepSpans::batch},
                                                                               {"forward", &StepSpans::forward},
                                                                               {"backward", &StepSpans::backward},
                                                                               {"waiting", &StepSpans::waiting},
                                                                               {"optimiser", &StepSpans::optimiser}}};

json pack(const Span& span) { return {span.begin, span.end}; }

Span unpack(const json& packed, std::int64_t behind) {
  return {packed.at(0).get<std::int64_t>() + behind, packed.at(1).get<std::int64_t>() + behind};
}

json pack(const StepSpans& step) {
  json packed = {{"step", step.step}, {"buckets", json::array()}, {"exchanges", json::array()}};
  for (const auto& [name, phase] : kPhases) packed[name] = pack(step.*phase);
  for (const StepSpans::Bucket& bucket : step.buckets)
    packed["buckets"].push_back({bucket.bytes, pack(bucket.reduction)});
  for (const Span& exchange : step.exchanges) packed["exchanges"].push_back(pack(exchange));
  return packed;
}

StepSpans unpack_step(const json& packed, std::int64_t behind) {
  StepSpans step;
  step.step = packed.at("step").get<std::int64_t>();
  for (const auto& [name, phase] : kPhases) step.*phase = unpack(packed.at(name), behind);
  for (const json& bucket : packed.at("buckets")) {
    step.buckets.push_back({bucket.at(0).get<std::size_t>(), unpack(bucket.at(1), behind)});
  }
  for (const json& exchange : packed.at("exchanges")) step.exchanges.push_back(unpack(exchange, behind));
  return step;
}

// When this rank left a few barriers.
std::vector<std::int64_t> barriers(trireme::Communicator& world) {
  std::vector<std::int64_t> left(9);
  for (std::int64_t& time : left) {
    world.barrier();
    time = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  return left;
}

// How far a clock is behind rank 0's: the median, since a rank may be held up at any of the barriers.
std::int64_t behind(const json& zero, const json& other) {
  std::vector<std::int64_t> differences;
  for (std::size_t i = 0; i < zero.size(); ++i) {
    differences.push_back(zero.at(i).get<std::int64_t>() - other.at(i).get<std::int64_t>());
  }
  const auto middle = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
  std::nth_element(differences.begin(), middle, differences.end());
  return *middle;
}

json named(const char* what, int rank, std::size_t thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

class Trace {
 public:
  explicit Trace(const Timelines& timelines) {
    for (const auto& steps : timelines) {
      if (!steps.empty() && (zero_ == 0 || steps.front().batch.begin < zero_)) zero_ = steps.front().batch.begin;
    }
    for (std::size_t rank = 0; rank < timelines.size(); ++rank) add(static_cast<int>(rank), timelines[rank]);
  }

  std::string text() const { return json{{"displayTimeUnit", "ms"}, {"traceEvents", events_}}.dump() + "\n"; }

 private:
  void add(int rank, const std::vector<StepSpans>& steps) {
    events_.push_back(named("process_name", rank, 0, fmt::format("rank {}", rank)));
    events_.push_back(
        {{"ph", "M"}, {"name", "process_sort_index"}, {"pid", rank}, {"tid", 0}, {"args", {{"sort_index", rank}}}});
    events_.push_back(named("thread_name", rank, 0, "training"));
    std::size_t buckets = 0;
    for (const StepSpans& step : steps) {
      add(rank, 0, fmt::format("step {}", step.step), "step", step.whole());
      for (const auto& [name, phase] : kPhases) add(rank, 0, name, "phase", step.*phase);
      for (const Span& exchange : step.exchanges) add(rank, 0, "statistics", "exchange", exchange);
      for (std::size_t i = 0; i < step.buckets.size(); ++i) add_bucket(rank, step.step, i, step.buckets[i]);
      buckets = std::max(buckets, step.buckets.size());
    }
    // Buckets are under way at the same time, and the spans of a thread may not be: each has a thread of its own.
    for (std::size_t i = 0; i < buckets; ++i) {
      events_.push_back(named("thread_name", rank, i + 1, fmt::format("bucket {}", i)));
    }
  }

  void add_bucket(int rank, std::int64_t step, std::size_t index, const StepSpans::Bucket& bucket) {
    add(rank, index + 1, fmt::format("reduction of {}", trireme::format_bytes(static_cast<double>(bucket.bytes))),
        "reduction", bucket.reduction);
    events_.back()["args"] = {{"bytes", bucket.bytes}, {"step", step}};
  }

  void add(int rank, std::size_t thread, const std::string& name, const char* category, const Span& span) {
    const double begin = microseconds(span.begin), end = microseconds(span.end);
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", category},
                       {"pid", rank},
                       {"tid", thread},
                       {"ts", begin},
                       {"dur", end - begin}});
  }

  // In whole eighths, which are exact in binary and in nanoseconds. Rounded otherwise, spans that touch would overlap
  // by a nanosecond here and there, and Perfetto leaves out those that do.
  double microseconds(std::int64_t time) const {
    constexpr std::int64_t kEighth = 125;
    const std::int64_t eighths = (time - zero_) / kEighth;
    return static_cast<double>(eighths) / 8;
  }

  std::int64_t zero_ = 0;
  json events_ = json::array();
};

}  // namespace

double StepSpans::communicated() const {
  double seconds = waiting.seconds();
  for (const Span& exchange : exchanges) seconds += exchange.seconds();
  return seconds;
}

std::vector<StepSpans::Part> StepSpans::parts_of(const Span& span) const {
  std::vector<Span> waits = exchanges;
  waits.push_back({waiting.begin, std::max(waiting.end, span.end)});
  std::ranges::sort(waits, {}, &Span::begin);
  std::vector<Part> parts;
  std::int64_t now = span.begin;
  const auto add = [&](std::int64_t until, bool hidden) {
    until = std::clamp(until, now, span.end);
    if (until > now) parts.push_back({{now, until}, hidden});
    now = until;
  };
  for (const Span& wait : waits) {
    add(wait.begin, true);
    add(wait.end, false);
  }
  return parts;
}

Timelines gather_timelines(trireme::Communicator& world, const std::vector<StepSpans>& mine) {
  json packed = {{"barriers", barriers(world)},
                 {"same_clock", world.rank() == 0 || world.shares_memory(0)},
                 {"steps", json::array()}};
  for (const StepSpans& step : mine) packed["steps"].push_back(pack(step));
  const std::vector<json> all = trireme::all_gather_object(world, packed);
  Timelines timelines;
  for (const json& rank : all) {
    const std::int64_t late =
        rank.at("same_clock").get<bool>() ? 0 : behind(all.front().at("barriers"), rank.at("barriers"));
    std::vector<StepSpans>& steps = timelines.emplace_back();
    for (const json& step : rank.at("steps")) steps.push_back(unpack_step(step, late));
  }
  return timelines;
}

std::string chrome_trace(const Timelines& timelines) { return Trace(timelines).text(); }

}  // namespace makemore
