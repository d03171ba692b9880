#include "torch/notices.h"

namespace trireme::detail {

Notices::Notices(Communicator ranks) : ranks_(ranks.split(0, ranks.rank())) {}

Notices::Message& Notices::say(Announced what, std::int64_t which, int rank) {
  forget_heard();
  Message& message = under_way_.emplace_back();
  message.words = {static_cast<std::int64_t>(what), which, rank};
  message.handle = ranks_.allreduce_async(message.words, Op::max);
  return message;
}

void Notices::forget_heard() {
  while (!under_way_.empty() && under_way_.front().handle.done()) {
    Message& message = under_way_.front();
    message.handle.wait();
    if (message.words[2] >= 0) last_at_work_ = static_cast<int>(message.words[2]);
    under_way_.pop_front();
  }
}

int Notices::last_at_work() {
  if (!under_way_.empty()) under_way_.back().handle.wait();
  forget_heard();
  return last_at_work_;
}

void Notices::announce(Announced what, std::int64_t which) { say(what, which, ranks_.rank()); }

Notice Notices::announce_and_wait(Announced what, std::int64_t which) {
  Message& message = say(what, which, ranks_.rank());
  message.handle.wait();
  return {static_cast<Announced>(message.words[0]), message.words[1], static_cast<int>(message.words[2])};
}

Notice Notices::hear() {
  Message& message = say(Announced::nothing, 0, -1);
  message.handle.wait();
  return {static_cast<Announced>(message.words[0]), message.words[1], static_cast<int>(message.words[2])};
}

}  // namespace trireme::detail
