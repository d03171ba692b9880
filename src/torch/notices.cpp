#include "torch/notices.h"

#include "torch/give_up.h"

#include <fmt/format.h>

#include <limits>

namespace trireme::detail {
namespace {

// One number for what is announced, so that what differs is seen by the largest and the smallest of them.
constexpr int kBitsOfWhich = 32;
std::int64_t number_of(Announced what, std::int64_t which) {
  return (static_cast<std::int64_t>(what) << kBitsOfWhich) + which;
}
Announced what_of(std::int64_t number) { return static_cast<Announced>(number >> kBitsOfWhich); }
std::int64_t which_of(std::int64_t number) { return number & ((std::int64_t{1} << kBitsOfWhich) - 1); }

std::string describe(std::int64_t number) {
  const std::int64_t which = which_of(number);
  switch (what_of(number)) {
    case Announced::nothing: return "nothing";
    case Announced::buffers: return "the broadcast of buffers before a forward";
    case Announced::at_work: return "the end of a forward";
    case Announced::weights: return "weigh()";
    case Announced::bucket: return fmt::format("the reduction of bucket {}", which);
    case Announced::reduced: return "the end of all buckets' reductions";
    case Announced::used: return "the exchange of which parameters were used";
    case Announced::sparse: return fmt::format("the reduction of parameter {}'s sparse gradient", which);
    case Announced::order: return "the first order of buckets";
    case Announced::step: return "the end of a backward";
    case Announced::statistics: return fmt::format("the forward of batch norm {}", which);
    case Announced::sums: return fmt::format("the backward of batch norm {}", which);
  }
  return fmt::format("something unknown ({})", number);
}

}  // namespace

Notices::Notices(Communicator ranks) : ranks_(ranks.split(0, ranks.rank())) {}

Notices::Message& Notices::say(Announced what, std::int64_t which, int rank) {
  forget_heard();
  const std::int64_t number = number_of(what, which);
  Message& message = under_way_.emplace_back();
  message.words = {number, rank >= 0 ? -number : std::numeric_limits<std::int64_t>::min(), rank};
  message.handle = ranks_.allreduce_async(message.words, Op::max);
  return message;
}

Notice Notices::heard(Message& message) {
  message.handle.wait();
  const auto& [largest, negative_smallest, rank] = message.words;
  if (rank >= 0 && largest != -negative_smallest) {
    give_up(ranks_,
            fmt::format("ranks that have batches do not do the same while a Join lives: one came to {}, another "
                        "to {}. Their models have to be used alike",
                        describe(-negative_smallest), describe(largest)));
  }
  return {what_of(largest), which_of(largest), static_cast<int>(rank)};
}

void Notices::forget_heard() {
  while (!under_way_.empty() && under_way_.front().handle.done()) {
    const Notice notice = heard(under_way_.front());
    if (notice.last_at_work >= 0) last_at_work_ = notice.last_at_work;
    under_way_.pop_front();
  }
}

int Notices::last_at_work() {
  if (!under_way_.empty()) under_way_.back().handle.wait();
  forget_heard();
  return last_at_work_;
}

void Notices::announce(Announced what, std::int64_t which) { say(what, which, ranks_.rank()); }

Notice Notices::announce_and_wait(Announced what, std::int64_t which) { return heard(say(what, which, ranks_.rank())); }

Notice Notices::hear() { return heard(say(Announced::nothing, 0, -1)); }

}  // namespace trireme::detail
