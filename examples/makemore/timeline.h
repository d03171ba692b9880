// What each rank did when: for the trace and the report.
#pragma once

#include "trireme/communicator.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace makemore {

/// Nanoseconds, of the rank's own steady clock or, once gathered, of rank 0's.
struct Span {
  std::int64_t begin = 0, end = 0;

  double seconds() const { return 1e-9 * static_cast<double>(end - begin); }
};

struct StepSpans {
  std::int64_t step = 0;
  Span batch, forward, backward;
  Span waiting;  ///< for reductions that backward did not hide
  Span optimiser;
  struct Bucket {
    std::size_t bytes = 0;
    Span reduction;  ///< from its last gradient until it was reduced
  };
  std::vector<Bucket> buckets = {};
  std::vector<Span> exchanges = {};  ///< of batch norm's statistics, in the midst of forward and backward

  /// The seconds in which messages were waited for and nothing was computed.
  double communicated() const;

  /// What of a span went by while this rank computed forward or backward, and what while it waited: in pieces, in order.
  struct Part {
    Span span;
    bool hidden = false;
  };
  std::vector<Part> parts_of(const Span& span) const;

  Span whole() const { return {batch.begin, optimiser.end}; }
};

/// The steps of each rank.
using Timelines = std::vector<std::vector<StepSpans>>;

/// All ranks call it; all get all. Ranks that share rank 0's host share its clock. Other hosts' clocks are set by when
/// they leave a barrier, which is as exact as a message between them is fast.
Timelines gather_timelines(trireme::Communicator& world, const std::vector<StepSpans>& mine);

/// As Chrome and Perfetto read it: a process a rank, a thread for training and one for each bucket.
std::string chrome_trace(const Timelines& timelines);

}  // namespace makemore
