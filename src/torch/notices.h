// How ranks that have run out of batches know what the others call next: while ranks may join, each collective of
// data-parallel training is announced by a small allreduce of its own. Ranks that are at work give what they are about
// to call; those that have run out give nothing, hear it, and take part with neutral values. When nobody is at work any
// more, all hear nothing. Those at work have to say the same: if they do not, it is an error that names both.
#pragma once

#include "trireme/communicator.h"

#include <array>
#include <cstdint>
#include <deque>

namespace trireme::detail {

enum class Announced : std::int64_t {
  nothing,
  buffers,     ///< the broadcast of buffers
  at_work,     ///< the count of ranks that have a batch
  weights,     ///< the sum of weights
  bucket,      ///< the start of a bucket's reduction; `which` is its index
  reduced,     ///< the end of all of them
  used,        ///< which parameters anyone has a gradient of
  sparse,      ///< a sparse gradient's reduction; `which` is its parameter
  order,       ///< the order that buckets are built anew in
  step,        ///< the end of a backward
  statistics,  ///< of a batch norm's forward; `which` is the module
  sums,        ///< of a batch norm's backward
};

struct Notice {
  Announced what = Announced::nothing;
  std::int64_t which = 0;
  int last_at_work = -1;  ///< the highest rank that announced it
};

class Notices {
 public:
  /// All ranks call it alike.
  explicit Notices(Communicator ranks);

  /// Says what this rank is about to call. Does not wait for it to be heard.
  void announce(Announced what, std::int64_t which = 0);

  /// The same, and waits: the answer names the highest rank at work.
  Notice announce_and_wait(Announced what, std::int64_t which = 0);

  /// What is called next, by those at work.
  Notice hear();

  /// The highest rank of those that announced something last; -1: nobody ever did. The same on all ranks once all hear
  /// nothing.
  int last_at_work();

 private:
  struct Message {
    std::array<std::int64_t, 3> words;  ///< what, the negative of it, and the rank: of each the largest
    Handle handle;
  };
  Message& say(Announced what, std::int64_t which, int rank);
  Notice heard(Message& message);  ///< waits for it
  void forget_heard();

  Communicator ranks_;
  std::deque<Message> under_way_;
  int last_at_work_ = -1;
};

}  // namespace trireme::detail
