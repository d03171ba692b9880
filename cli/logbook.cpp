#include "cli/logbook.h"

#include "base/host_name.h"
#include "cli/process.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <unistd.h>

namespace trireme::cli {
namespace {

std::string line(const std::string& message) { return fmt::format("trireme run: {}\n", message); }

// Not everybody who wants it later knows so before. A folder in which nothing can be written is no reason to complain.
std::string save_unasked(const std::string& json) {
  const std::string path = fmt::format("trireme-report-{}.json", ::getpid());
  try {
    OutputFile(path).save(json);
  } catch (const UsageError&) {
    return {};
  }
  return line(
      fmt::format("all of this is in {}, as JSON (--report-file FILE puts it elsewhere, or nowhere: none)", path));
}

}  // namespace

Logbook::Logbook(const Launch& options) : options_(options), ranks_(static_cast<std::size_t>(options.ranks)) {
  const bool named = !options.report_file.empty() && options.report_file != "none";
  if (named) file_ = std::make_unique<OutputFile>(options.report_file);
  for (int rank = 0; rank < options.ranks; ++rank) ranks_[rank].rank = rank;
}

void Logbook::take(const Recorded& recorded) {
  RankReport& rank = ranks_[recorded.rank];
  rank.recent = recorded.recent;
  for (Record& record : rank.recent) record.shift(-recorded.offset);
  rank.blames = recorded.blamed;
  if (options_.report) stragglers_.take(recorded.rank, recorded.records, recorded.offset);
}

void Logbook::close(const Ending& ending, Sink& err) {
  if (ending.status == 0 && !options_.report && !file_) return;
  stragglers_.settle();  // what has come so far is complete,
  stragglers_.settle();  // and therefore counts now
  for (RankReport& rank : ranks_) rank.seen = ending.failed_at.value_or(Clock::now()).time_since_epoch();
  const bool known = std::ranges::any_of(ranks_, &RankReport::kept_others_from_meeting);
  if (!known) {
    for (const int culprit : ending.kept_others_from_meeting) ranks_[culprit].kept_others_from_meeting = true;
  }
  if (ending.failed_at) mark_causes(ranks_);
  // Ranks that have not even come to a collective are told of too, but not a program that is not there.
  const bool fell = ending.failed_at.has_value() && ranks_.size() > 1;
  const bool any = std::any_of(ranks_.begin(), ranks_.end(), [&](const RankReport& rank) {
    return rank.last() != nullptr || rank.stopped_by != 0 || (fell && rank.pid != 0);
  });
  const bool tells = any || options_.report;
  if (tells && ending.status != 0 && ending.signal != 0) {
    err.add(line(fmt::format("got {}, as had all ranks", name_of_signal(ending.signal))));
  }
  if (tells) err.add(format_ranks(ranks_));
  if (options_.report) err.add(format_stragglers(stragglers_));
  const std::string json = as_json(ending);
  if (ending.failed_at && any && options_.report_file.empty()) err.add(save_unasked(json));
  while (err.pending() && !err.broken()) err.write_some();
  if (file_) file_->save(json);
}

std::string Logbook::as_json(const Ending& ending) const {
  RunReport run{.command = options_.command, .status = ending.status, .host = host_name()};
  if (ending.failed_at) {
    const auto since = std::chrono::duration_cast<RunReport::Time::duration>(Clock::now() - *ending.failed_at);
    run.failed_at = std::chrono::system_clock::now() - since;
  }
  return report_as_json(run, ranks_, stragglers_);
}

}  // namespace trireme::cli
