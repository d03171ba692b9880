#include "transport/bell.h"

#include <cstring>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace trireme::transport {

void Bell::sleep(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - Clock::now()).count();
  if (left > 0) {
    constexpr std::int64_t kNanoseconds = 1'000'000'000;
    const timespec time{.tv_sec = left / kNanoseconds, .tv_nsec = left % kNanoseconds};
    // Returns at once if the word has changed; any other reason to return is as good.
    ::syscall(SYS_futex, &word_, FUTEX_WAIT, kAsleep, &time, nullptr, 0);
  }
  stay_awake();
}

bool Bell::wake(int event) {
  const std::uint32_t state = word_.exchange(kAwake);
  if (state == kAsleep) {
    ::syscall(SYS_futex, &word_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  } else if (state == kAsleepOnEvent && event >= 0) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof one);
  }
  return state != kAwake;
}

}  // namespace trireme::transport
