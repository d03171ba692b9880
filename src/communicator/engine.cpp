#include "communicator/engine.h"

#include <algorithm>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// How long a rank looks for something to do before it sleeps.
constexpr auto kSpins = 100us;

/// How often a rank that waits looks whether its peers are still there.
constexpr auto kTick = 100ms;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Engine::Engine(EngineParts parts) : parts_(std::move(parts)), routes_(parts_.ranks), gone_(parts_.ranks) {
  last_tick_ = Clock::now();
}

void Engine::use(std::unique_ptr<transport::Host> host, std::unique_ptr<transport::Tcp> tcp) {
  host_ = std::move(host);
  tcp_ = std::move(tcp);
  for (int rank = 0; rank < parts_.ranks; ++rank) {
    const bool near = host_ && host_->reaches(rank);
    routes_[rank] = near ? static_cast<transport::Transport*>(host_.get()) : tcp_.get();
  }
  if (host_) {
    bell_ = &host_->memory().bell();
    event_ = host_->memory().event();
  } else {
    own_bell_ = std::make_unique<transport::Bell>();
    bell_ = own_bell_.get();
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  if (tcp_ && event_ >= 0) tcp_->watch(event_);
  helper_ = std::thread([this] { drive_when_needed(); });
}

Engine::~Engine() {
  close();
  {
    const std::lock_guard lock(helper_mutex_);
    helper_ends_ = true;
  }
  helper_wakes_.notify_one();
  if (helper_.joinable()) helper_.join();
  tcp_.reset();
  if (own_bell_ && event_ >= 0) ::close(event_);
  host_.reset();
}

void Engine::close() {
  while (!take_seat()) std::this_thread::yield();
  if (host_) host_->close();
  if (tcp_) tcp_->close();
  driven_.store(false);
}

void Engine::finish() {
  while (pending_.load() > 0) {
    if (take_seat()) {
      drive(nullptr);
      leave_seat();
    } else {
      std::this_thread::sleep_for(1ms);
    }
  }
  close();
}

void Engine::run(const std::shared_ptr<Operation>& operation) {
  if (!take_seat()) {
    submit(operation);
    wait(*operation);
    return;
  }
  ++pending_;
  begin(operation);
  drive(operation.get());
  leave_seat();
  if (operation->error) std::rethrow_exception(operation->error);
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  if (!take_seat()) {
    submit(operation);
    return;
  }
  ++pending_;
  begin(operation);
  step();
  leave_seat();
}

void Engine::wait(Operation& operation) {
  while (!operation.is_done()) {
    if (take_seat()) {
      drive(&operation);
      leave_seat();
    } else {
      operation.done.wait(0, std::memory_order_acquire);
    }
  }
  if (operation.error) std::rethrow_exception(operation.error);
}

void Engine::submit(const std::shared_ptr<Operation>& operation) {
  ++pending_;
  {
    const std::lock_guard lock(submit_mutex_);
    submissions_.push_back(operation);
  }
  submitted_.store(true);
  bell_->ring(event_);
  // The driver may have left without seeing it.
  if (take_seat()) leave_seat();
}

bool Engine::take_submitted() {
  if (!submitted_.load(std::memory_order_relaxed) || !submitted_.exchange(false)) return false;
  std::vector<std::shared_ptr<Operation>> taken;
  {
    const std::lock_guard lock(submit_mutex_);
    taken.swap(submissions_);
  }
  for (const auto& operation : taken) begin(operation);
  return true;
}

void Engine::leave_seat() {
  driven_.store(false);
  if (pending_.load() == 0) return;
  {
    const std::lock_guard lock(helper_mutex_);
    helper_needed_ = true;
  }
  helper_wakes_.notify_one();
}

void Engine::drive_when_needed() {
  std::unique_lock lock(helper_mutex_);
  while (true) {
    helper_wakes_.wait(lock, [this] { return helper_needed_ || helper_ends_; });
    if (helper_ends_) return;
    helper_needed_ = false;
    lock.unlock();
    if (take_seat()) {
      drive(nullptr);
      leave_seat();
    }
    lock.lock();
  }
}

// Until the operation is done; without one, until nothing is under way.
void Engine::drive(const Operation* until) {
  Clock::time_point idle_since{};
  int idle_steps = 0;
  while (until != nullptr ? !until->is_done() : pending_.load() > 0) {
    // Somebody else's deadline must come even if there is always something to do.
    constexpr unsigned kStepsPerTick = 4096;
    if (++steps_ % kStepsPerTick == 0) {
      if (const auto now = Clock::now(); now >= next_tick()) tick(now);
    }
    if (step()) {
      idle_steps = 0;
      continue;
    }
    // Looking at the clock costs as much as looking for messages: not every time.
    constexpr int kStepsPerLook = 32;
    if (idle_steps++ == 0) {
      idle_since = {};
    } else if (idle_steps % kStepsPerLook == 0 || parts_.crowded) {
      if (idle_since == Clock::time_point{}) idle_since = Clock::now();
      idle(idle_since);
    } else {
      pause();
    }
  }
}

bool Engine::step() {
  bool moved = take_submitted();
  if (host_) moved |= host_->progress();
  if (tcp_) moved |= tcp_->progress();
  if (failing_) {
    shut_down();
    return true;
  }
  return moved;
}

void Engine::idle(Clock::time_point since) {
  const auto now = Clock::now();
  if (now - since < kSpins) {
    if (parts_.crowded) ::sched_yield();
    return;
  }
  sleep();
}

Clock::time_point Engine::next_tick() const {
  Clock::time_point next = last_tick_ + kTick;
  for (const auto& operation : active_) next = std::min(next, operation->deadline);
  return next;
}

void Engine::sleep() {
  const Clock::time_point until = next_tick();
  const bool by_event = tcp_ != nullptr;
  if (by_event) {
    bell_->prepare_for_event();
  } else {
    bell_->prepare();
  }
  if (step() || submitted_.load()) {
    bell_->stay_awake();
  } else if (by_event) {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(until - Clock::now()).count();
    pollfd look{.fd = tcp_->descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&look, 1, static_cast<int>(std::max<std::int64_t>(0, (left + 999) / 1000)));
    bell_->stay_awake();
  } else {
    bell_->sleep(until);
  }
  const auto now = Clock::now();
  if (now >= until) tick(now);
}

void Engine::tick(Clock::time_point now) {
  last_tick_ = now;
  if (host_) host_->check_processes();
  for (const auto& operation : active_) {
    if (failing_) break;
    if (now >= operation->deadline) {
      fail(ErrorKind::timeout, waiting_for(*operation));
    } else if (now >= operation->asks_at) {
      ask_others(*operation);
    }
  }
}

void Engine::add(Group& group) {
  const std::lock_guard lock(groups_mutex_);
  groups_.push_back(&group);
}

void Engine::remove(Group& group) {
  const std::lock_guard lock(groups_mutex_);
  std::erase(groups_, &group);
}

Group* Engine::group_of(std::uint32_t context) {
  for (Group* group : groups_) {
    if (group->context == context) return group;
  }
  return nullptr;
}

transport::Transport& Engine::route(int peer) { return *routes_[peer]; }

}  // namespace trireme
