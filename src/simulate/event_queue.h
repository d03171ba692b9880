// Events in the order of their time; those at the same time in the order in which they were put in.
//
// A radix heap: simulated time never runs backwards, so an event is filed by the highest bit in which its time differs
// from the last one taken. Each event moves to lower files only, so a step costs little however many wait.
#pragma once

#include "trireme/network.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace trireme {

class EventQueue {
 public:
  struct Event {
    Ticks time;
    std::int32_t what;
  };

  /// `time` must not lie before the event taken last.
  void push(Ticks time, std::int32_t what) {
    ++size_;
    files_[file_of(time)].push_back({time, what});
  }

  bool empty() const { return size_ == 0; }

  /// The event `n` places on, if it is at the present moment too and thus known already; else nothing.
  const Event* ahead(std::size_t n) const { return next_ + n < files_[0].size() ? &files_[0][next_ + n] : nullptr; }

  Event pop() {
    if (next_ == files_[0].size()) refill();
    --size_;
    return files_[0][next_++];
  }

 private:
  std::size_t file_of(Ticks time) const {
    return std::bit_width(static_cast<std::uint64_t>(time.count()) ^ static_cast<std::uint64_t>(last_.count()));
  }

  void refill() {
    files_[0].clear();
    next_ = 0;
    auto lowest = std::find_if(files_.begin() + 1, files_.end(), [](const auto& file) { return !file.empty(); });
    last_ = lowest->front().time;
    for (const Event& event : *lowest) last_ = std::min(last_, event.time);
    for (const Event& event : *lowest) files_[file_of(event.time)].push_back(event);
    lowest->clear();
  }

  std::array<std::vector<Event>, 65> files_;
  Ticks last_{0};
  std::size_t next_ = 0;  // in files_[0], which holds the events of the present moment
  std::size_t size_ = 0;
};

}  // namespace trireme
