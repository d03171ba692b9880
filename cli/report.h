// What became of the ranks of a run and what each did last, and who kept the others waiting: for people, and as JSON.
#pragma once

#include "communicator/board.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {

/// One rank, as it is at the end, or when something went wrong.
struct RankReport {
  int rank = 0;
  int pid = 0;
  std::string host = {};  ///< empty: this one
  std::string fate = {};  ///< "was killed by signal 9 (Killed)"; empty: it still ran
  int stopped_by = 0;     ///< the signal by which it was stopped before that
  bool killed = false;  ///< by a signal that was not its own abort() or its end; or lost with its host, or not started
  bool lost = false;    ///< with its host: the last that was heard is old, or nothing was
  bool failed = false;  ///< the first of all
  bool kept_others_from_meeting = false;  ///< it did not come to the rendezvous, or left it too soon
  bool cause = false;                     ///< of the failure, as far as can be seen; see mark_causes()
  std::vector<Record> recent = {};        ///< what it did last, oldest first
  std::vector<int> blames = {};           ///< whom it says that it could not go on for
  std::chrono::nanoseconds seen{0};       ///< when this was looked at, on the clock of its records

  const Record* last() const { return recent.empty() ? nullptr : &recent.back(); }
};

/// The run as a whole.
struct RunReport {
  using Time = std::chrono::system_clock::time_point;

  std::vector<std::string> command = {};  ///< the program and its arguments
  int status = 0;                         ///< its exit status
  std::optional<Time> failed_at = {};     ///< the first rank or host, or the time was over
  std::string host = {};                  ///< this one
};

/// Who came last to the collectives, from records as they come: those with a time of their own. Those of a rank that come
/// too late to be seen do not count.
class Stragglers {
 public:
  /// A rank's operations that were not taken before. `offset`: of its host's clock before the common one.
  void take(int rank, const std::vector<Record>& records, std::chrono::nanoseconds offset = {});

  /// After what there is of all ranks was taken.
  void settle();

  struct Rank {
    std::uint64_t last = 0;            ///< operations that it was the last to come to
    std::chrono::nanoseconds kept{0};  ///< that those took the others to wait, all together
    std::chrono::nanoseconds most{0};  ///< in one of them
  };
  const std::map<int, Rank>& ranks() const { return ranks_; }
  std::uint64_t operations() const { return operations_; }  ///< that all ranks' arrivals are known of

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  ///< context and sequence

  struct Arrivals {
    std::map<int, std::chrono::nanoseconds> times;  ///< by rank
    bool settles = false;                           ///< all of its ranks have had the time to be seen
  };

  void count(const Arrivals& arrivals);

  std::map<Key, Arrivals> arrivals_;
  std::map<std::uint32_t, std::size_t> members_;  ///< by context: the most ranks that were seen in an operation
  std::map<int, Rank> ranks_;
  std::uint64_t operations_ = 0;
};

/// Marks whom a failure comes from: those that were stopped, killed or lost; or else who did not come to where ranks
/// meet, or left it; or else those that most ranks blame, or those who blame them, if these could not tell most others;
/// or else the first to fail. But one that gave up in an operation to which others never came is not to blame: they
/// are. So they are when nobody failed, and the time was over.
void mark_causes(std::vector<RankReport>& ranks);

/// A table: a line a rank. Below it, who was not where most ranks were.
std::string format_ranks(const std::vector<RankReport>& ranks);

/// "rank 2 came last to 97 of 100 operations, ..."; a line each for those who matter.
std::string format_stragglers(const Stragglers& stragglers);

/// All as JSON. Of each rank it has what was recent, but of many ranks together no more than kMostOperations, or the
/// last of each.
inline constexpr std::size_t kMostOperations = 1 << 14;
std::string report_as_json(const RunReport& run, const std::vector<RankReport>& ranks, const Stragglers& stragglers);

}  // namespace trireme::cli
