#include "cli/report.h"

#include "cli/process.h"
#include "rendezvous/meeting.h"
#include "trireme/units.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

namespace trireme::cli {
namespace {

using Nanoseconds = std::chrono::nanoseconds;
using Json = nlohmann::ordered_json;

constexpr std::uint32_t kWorld = 1;  // the first communicator's context

// So long ranks wait for each other without anything being wrong.
constexpr Nanoseconds kNoticed = std::chrono::milliseconds(100);

std::uint32_t communicator_of(const Record& record) { return record.context & ~kMessages; }

std::string format(Nanoseconds time) { return format_time(std::max(Seconds(0), Seconds(time))); }

std::string describe_last(const RankReport& rank, bool one_communicator) {
  if (rank.last() == nullptr)
    return rank.lost                       ? "not known"
           : rank.pid == 0                 ? "nothing"
           : rank.kept_others_from_meeting ? "nothing: the others waited for it where ranks meet"
                                           : "nothing: it called no collective";
  std::string what = rank.last()->describe();
  if (!one_communicator) what += fmt::format(" (communicator {})", communicator_of(*rank.last()));
  if (rank.lost) return fmt::format("{}, when it was last heard of", what);
  if (rank.last()->ended) {
    const bool exact = rank.last()->timed || *rank.last()->ended >= rank.seen;
    const std::string_view at_most = exact ? "" : "less than ";
    return fmt::format("{}, ended {}{} before", what, at_most, format(rank.seen - *rank.last()->ended));
  }
  if (rank.last()->begun > rank.seen) return fmt::format("in {}, begun since", what);
  return fmt::format("in {}, for {}", what, format(rank.seen - rank.last()->begun));
}

std::string describe_fate(const RankReport& rank) {
  const std::string fate = rank.fate.empty() ? "was running" : rank.fate;
  return rank.stopped_by == 0 ? fate : fmt::format("was stopped by {}, then {}", name_of_signal(rank.stopped_by), fate);
}

std::string pid_and_host(const RankReport& rank) {
  const std::string pid = rank.pid == 0 ? "none" : fmt::format("{}", rank.pid);
  return rank.host.empty() ? pid : fmt::format("{} on {}", pid, rank.host);
}

Json to_json(const Record& record, Nanoseconds seen) {
  Json json = {{"operation", record.sequence},         {"communicator", communicator_of(record)},
               {"call", record.call.describe()},       {"operations_so_far", record.number + 1},
               {"finished", record.ended.has_value()}, {"begun_s_before", Seconds(seen - record.begun).count()}};
  if (record.ended) json["ended_s_before"] = Seconds(seen - *record.ended).count();
  if (!record.timed) json["timed"] = false;
  return json;
}

Json to_json(const RankReport& rank, const std::string& this_host, std::size_t operations) {
  Json json = {{"rank", rank.rank},     {"pid", rank.pid},        {"host", rank.host.empty() ? this_host : rank.host},
               {"ended", rank.fate},    {"failed", rank.failed},  {"cause", rank.cause},
               {"blames", rank.blames}, {"recent", Json::array()}};
  if (rank.lost) json["lost"] = true;
  if (rank.stopped_by != 0) json["stopped_by_signal"] = rank.stopped_by;
  if (rank.last() != nullptr) json["last"] = to_json(*rank.last(), rank.seen);
  const std::size_t count = std::min(operations, rank.recent.size());
  for (const Record& record : std::span(rank.recent).last(count)) {
    json["recent"].push_back(to_json(record, rank.seen));
  }
  return json;
}

using Place = std::pair<std::uint32_t, std::uint32_t>;  // context and sequence

Place place_of(const Record& record) { return {record.context, record.sequence}; }

// Where most ranks were that had not come to an end, and who was not there. Of those of a lost host nobody knows.
struct Missing {
  const RankReport* there = nullptr;  // one of them; none: there is no such place
  int waiting = 0;
  std::vector<int> ranks{};
};

Missing find_missing(const std::vector<RankReport>& ranks) {
  std::map<Place, int> waiting;
  Missing missing;
  for (const RankReport& rank : ranks) {
    if (rank.lost || rank.last() == nullptr || rank.last()->ended) continue;
    if (rank.last()->call.kind != CallKind::collective) continue;
    const int count = ++waiting[place_of(*rank.last())];
    if (count > missing.waiting) missing = {.there = &rank, .waiting = count};
  }
  if (missing.there == nullptr) return missing;
  const Place place = place_of(*missing.there->last());
  for (const RankReport& rank : ranks) {
    // Of another communicator it may not be a member; and it may be ahead.
    const bool behind = rank.last() != nullptr
                            ? rank.last()->context == place.first && rank.last()->sequence < place.second
                            : place.first == kWorld;
    if (behind && !rank.lost) missing.ranks.push_back(rank.rank);
  }
  return missing;
}

// "3 of 4 ranks were in operation 146, ...; rank 2 was not"
std::string describe_missing(const std::vector<RankReport>& ranks) {
  const Missing missing = find_missing(ranks);
  const bool any_cause = std::ranges::any_of(ranks, &RankReport::cause);
  // In a run that went well until it was ended, somebody is always the last.
  if (missing.ranks.empty() || (!any_cause && missing.there->seen - missing.there->last()->begun < kNoticed)) return {};
  return fmt::format("{} of {} ranks were in {}; {} {} not\n", missing.waiting, ranks.size(),
                     missing.there->last()->describe(), rendezvous::list_ranks(missing.ranks),
                     missing.ranks.size() == 1 ? "was" : "were");
}

// Those that the most ranks blame; several, if as many blame each.
std::vector<int> most_blamed(const std::vector<RankReport>& ranks) {
  std::map<int, int> votes;
  int most = 1;
  for (const RankReport& rank : ranks) {
    for (const int blamed : rank.blames) most = std::max(most, ++votes[blamed]);
  }
  std::vector<int> found;
  for (const auto& [blamed, count] : votes) {
    const bool known = blamed >= 0 && blamed < static_cast<int>(ranks.size());
    if (known && count == most) found.push_back(blamed);
  }
  return found;
}

// Who finds that a rank is gone tells all others. If most were in an operation and have not heard of it, nothing came
// through to them from who blames, for whom all others were gone.
bool are_cut_off_who_blame(const std::vector<RankReport>& ranks) {
  const auto blames = [](const RankReport& rank) { return !rank.blames.empty(); };
  const auto has_not_heard = [&](const RankReport& rank) {
    return !blames(rank) && !rank.lost && rank.last() != nullptr && !rank.last()->ended;
  };
  return std::count_if(ranks.begin(), ranks.end(), has_not_heard) > std::count_if(ranks.begin(), ranks.end(), blames);
}

// All by themselves and before any had to do with another, as for a wrong option: which was the first means nothing.
bool ended_alike(const std::vector<RankReport>& ranks) {
  return ranks.size() > 1 && std::ranges::all_of(ranks, [&](const RankReport& rank) {
           return !rank.fate.empty() && rank.fate == ranks[0].fate && rank.last() == nullptr;
         });
}

}  // namespace

void Stragglers::take(int rank, const std::vector<Record>& records, Nanoseconds offset) {
  for (const Record& record : records) {
    if (record.call.kind != CallKind::collective) continue;
    auto& times = arrivals_[{record.context, record.sequence}].times;
    times[rank] = record.begun - offset;
    members_[record.context] = std::max(members_[record.context], times.size());
  }
}

// An operation is known when as many have come to it as ever came to one of its communicator. What is never known is
// forgotten when there is much of it.
void Stragglers::settle() {
  constexpr std::size_t kMost = 1 << 16;
  const bool many = arrivals_.size() >= kMost;
  for (auto each = arrivals_.begin(); each != arrivals_.end();) {
    Arrivals& arrivals = each->second;
    const bool known = arrivals.settles && arrivals.times.size() == members_[each->first.first];
    arrivals.settles = true;
    if (known) count(arrivals);
    each = known || many ? arrivals_.erase(each) : std::next(each);
  }
}

void Stragglers::count(const Arrivals& arrivals) {
  if (arrivals.times.size() < 2) return;
  std::vector<std::pair<Nanoseconds, int>> order;
  for (const auto& [rank, time] : arrivals.times) order.emplace_back(time, rank);
  std::sort(order.begin(), order.end());
  const auto [time, rank] = order.back();
  const Nanoseconds late = time - order[order.size() - 2].first;
  Rank& last = ranks_[rank];
  ++last.last;
  last.kept += late;
  last.most = std::max(last.most, late);
  ++operations_;
}

void mark_causes(std::vector<RankReport>& ranks) {
  const auto mark = [&](const auto& is_cause) {
    for (RankReport& rank : ranks) rank.cause = is_cause(rank);
    return std::ranges::any_of(ranks, &RankReport::cause);
  };
  if (mark([](const RankReport& rank) { return rank.stopped_by != 0 || rank.killed; })) return;
  if (mark([](const RankReport& rank) { return rank.kept_others_from_meeting; })) return;
  if (const std::vector<int> blamed = most_blamed(ranks); !blamed.empty()) {
    const bool known = std::ranges::any_of(blamed, [&](int rank) { return ranks[rank].failed; });
    const bool cut_off = !known && are_cut_off_who_blame(ranks);
    for (RankReport& rank : ranks) rank.cause = cut_off && !rank.blames.empty();
    for (const int rank : blamed) ranks[rank].cause = ranks[rank].cause || !cut_off;
    return;
  }
  const Missing missing = find_missing(ranks);
  const auto first = std::find_if(ranks.begin(), ranks.end(), [](const RankReport& rank) { return rank.failed; });
  const bool missed_others =
      first == ranks.end() || (missing.there != nullptr && first->last() != nullptr && !first->last()->ended &&
                               place_of(*first->last()) == place_of(*missing.there->last()));
  if (missed_others && !missing.ranks.empty()) {
    // When only the time is over, somebody is always the last.
    const bool waited = first != ranks.end() || missing.there->seen - missing.there->last()->begun >= kNoticed;
    for (const int rank : missing.ranks) ranks[rank].cause = waited;
  } else if (first != ranks.end() && !ended_alike(ranks)) {
    first->cause = true;
  }
}

std::string format_ranks(const std::vector<RankReport>& ranks) {
  std::size_t pid_width = 3;
  std::size_t fate_width = 5;
  std::set<std::uint32_t> communicators;
  for (const RankReport& rank : ranks) {
    if (rank.last() != nullptr) communicators.insert(communicator_of(*rank.last()));
    pid_width = std::max(pid_width, pid_and_host(rank).size());
    fate_width = std::max(fate_width, describe_fate(rank).size());
  }
  std::string text =
      fmt::format("{:>6}  {:<{}}  {:<{}}  {}\n", "rank", "pid", pid_width, "ended", fate_width, "what it did last");
  for (const RankReport& rank : ranks) {
    text += fmt::format("{:>1}{:>5}  {:<{}}  {:<{}}  {}\n", rank.cause ? "*" : " ", rank.rank, pid_and_host(rank),
                        pid_width, describe_fate(rank), fate_width, describe_last(rank, communicators.size() <= 1));
  }
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankReport& rank) { return rank.cause; })) {
    text += "* is what the failure seems to come from\n";
  }
  return text + describe_missing(ranks);
}

std::string format_stragglers(const Stragglers& stragglers) {
  if (stragglers.operations() == 0) return "no collective was seen that all ranks came to\n";
  std::vector<std::pair<int, Stragglers::Rank>> order(stragglers.ranks().begin(), stragglers.ranks().end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.kept > b.second.kept; });
  constexpr std::size_t kMost = 8;
  std::string text =
      fmt::format("who came last to {} collectives that were looked at, and how much later than the last but one:\n",
                  stragglers.operations());
  for (const auto& [rank, one] :
       std::vector(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, order.size())))) {
    text += fmt::format("  rank {:<5} {:>5.1f} % of them, {} each, {} at most, {} in all\n", rank,
                        100.0 * static_cast<double>(one.last) / static_cast<double>(stragglers.operations()),
                        format(one.kept / static_cast<std::int64_t>(one.last)), format(one.most), format(one.kept));
  }
  return text;
}

std::string report_as_json(const RunReport& run, const std::vector<RankReport>& ranks, const Stragglers& stragglers) {
  Json json = {{"command", run.command}, {"status", run.status}};
  if (run.failed_at) {
    const auto time = std::chrono::floor<std::chrono::milliseconds>(*run.failed_at);
    json["failed_at"] =
        fmt::format("{:%Y-%m-%dT%H:%M}:{:06.3f}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(time)),
                    Seconds(time - std::chrono::floor<std::chrono::minutes>(time)).count());
  }
  json["blamed"] = most_blamed(ranks);
  json["ranks"] = Json::array();
  json["stragglers"] = Json::array();
  json["collectives_seen"] = stragglers.operations();
  const std::size_t operations = std::max<std::size_t>(1, kMostOperations / std::max<std::size_t>(1, ranks.size()));
  for (const RankReport& rank : ranks) json["ranks"].push_back(to_json(rank, run.host, operations));
  for (const auto& [rank, one] : stragglers.ranks()) {
    json["stragglers"].push_back({{"rank", rank},
                                  {"last", one.last},
                                  {"kept_waiting_s", Seconds(one.kept).count()},
                                  {"most_s", Seconds(one.most).count()}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::cli
