// What wakes a rank that sleeps: a word in memory that its peers see.
//
// The sleeper says that it is about to sleep, looks once more whether anything came, and sleeps. Who brings something
// puts it in place first and rings then. All accesses are sequentially consistent, so one of the two sees the other:
// either the sleeper finds what came, or the bringer finds the sleeper. Ringing for a rank that is awake is one load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace trireme::transport {

class Bell {
 public:
  using Clock = std::chrono::steady_clock;

  /// Before sleeping; then look once more for what came, and if nothing did, call sleep().
  void prepare() { word_.store(kAsleep); }

  /// Instead of sleep(), when something came after all or something else was slept on.
  void stay_awake() { word_.store(kAwake, std::memory_order_relaxed); }

  /// Until it is rung, or the time has come.
  void sleep(Clock::time_point until);

  /// The same as prepare(), for one who will sleep on a descriptor: who rings writes to `event` of that rank.
  void prepare_for_event() { word_.store(kAsleepOnEvent); }

  /// Wakes the sleeper, if there is one, and says so. `event`: the sleeper's eventfd, as this process knows it; -1: it
  /// has none.
  bool ring(int event) { return word_.load() != kAwake && wake(event); }

 private:
  static constexpr std::uint32_t kAwake = 0;
  static constexpr std::uint32_t kAsleep = 1;
  static constexpr std::uint32_t kAsleepOnEvent = 2;

  bool wake(int event);

  std::atomic<std::uint32_t> word_{kAwake};
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "a bell is shared between processes");

}  // namespace trireme::transport
