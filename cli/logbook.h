// What is known of the ranks of a run while it goes on, and the report that becomes of it at the end.
#pragma once

#include "cli/files.h"
#include "cli/host.h"
#include "cli/launcher.h"
#include "cli/lines.h"
#include "cli/report.h"

#include <memory>
#include <optional>
#include <vector>

namespace trireme::cli {

class Logbook {
 public:
  /// Throws UsageError if the report is to be in a file that can't be written.
  explicit Logbook(const Launch& options);

  RankReport& of(int rank) { return ranks_[rank]; }
  const RankReport& of(int rank) const { return ranks_[rank]; }

  /// What a rank did lately, by the clock of its host.
  void take(const Recorded& recorded);
  /// After what there is of all ranks was taken.
  void settle() { stragglers_.settle(); }

  struct Ending {
    int status = 0;                                   ///< of the run
    std::optional<Clock::time_point> failed_at = {};  ///< the first rank or host, or the time was over
    int signal = 0;                                   ///< that all ranks got; 0: none
    std::vector<int> kept_others_from_meeting = {};   ///< ranks, as the rendezvous saw it
  };
  /// Writes the report where it belongs, if there is anything to tell: to `err`, and to a file.
  void close(const Ending& ending, Sink& err);

 private:
  std::string as_json(const Ending& ending) const;

  const Launch& options_;
  std::unique_ptr<OutputFile> file_;  // none: nobody has named one
  std::vector<RankReport> ranks_;
  Stragglers stragglers_;
};

}  // namespace trireme::cli
