#include "communicator/engine.h"

#include "base/signals.h"
#include "rendezvous/socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// How often a rank that waits looks whether its peers are still there.
constexpr auto kTick = 100ms;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Engine::Engine(EngineParts parts)
    : parts_(std::move(parts)),
      routes_(parts_.ranks),
      gone_(parts_.ranks),
      knows_(parts_.ranks),
      left_(parts_.ranks),
      fated_(parts_.ranks),
      elsewhere_(parts_.ranks) {
  last_tick_ = Clock::now();
  parts_.board->sign(parts_.rank);
}

void Engine::use(std::unique_ptr<transport::Host> host, std::unique_ptr<transport::Network> tcp) {
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
  helper_event_ = transport::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (tcp_) door_ = transport::Descriptor(::fcntl(tcp_->door(), F_DUPFD_CLOEXEC, 0));
  if (!helper_event_ || (tcp_ && !door_)) {
    throw SystemError(fmt::format("{} has no descriptors left: {}; raise 'ulimit -n'", parts_.names[parts_.rank],
                                  std::strerror(errno)));
  }
  const SignalsBlocked blocked;
  helper_ = std::thread([this] { drive_when_needed(); });
}

Engine::~Engine() {
  close();
  if (helper_.joinable()) {
    helper_ends_.store(true);
    wake_helper();
    helper_.join();
  }
  tcp_.reset();
  buried_.clear();
  if (own_bell_ && event_ >= 0) ::close(event_);
  host_.reset();
}

void Engine::close() {
  closing_.store(true);
  if (bell_ != nullptr) bell_->ring(event_);
  while (!take_seat()) std::this_thread::yield();
  if (host_) host_->close();
  if (tcp_) tcp_->close();
  driven_.store(false);
}

void Engine::abort(const std::string& why) {
  {
    const std::lock_guard lock(submit_mutex_);
    abort_ = why;
  }
  submitted_.store(true);
  bell_->ring(event_);
  while (!failed_.load()) {
    if (take_seat()) {
      guarded([this] { step(); });
      leave_seat();
    } else {
      std::this_thread::sleep_for(1ms);
    }
  }
  told_.store(true);
}

void Engine::finish() {
  closing_.store(true);
  bell_->ring(event_);
  while (pending_.load() > 0) {
    if (take_seat()) {
      drive(nullptr);
      leave_seat();
    } else {
      std::this_thread::sleep_for(1ms);
    }
  }
  while (!take_seat()) std::this_thread::yield();
  if (!failed_) guarded([this] { look_at_last(); });
  leave_seat();
  close();
  if (failed_ && !told_.load()) std::rethrow_exception(error_);
}

void Engine::rethrow(const std::exception_ptr& error) {
  told_.store(true);
  std::rethrow_exception(error);
}

// What came and what nobody wanted may show that ranks disagree.
void Engine::look_at_last() {
  step();
  for (std::size_t i = early_begin_; i < early_.size() && !failed_ && !failing_; ++i) {
    if (!early_[i].taken) compare(early_[i]);
  }
  if (failing_) shut_down();
}

void Engine::run(const std::shared_ptr<Operation>& operation) {
  operation->asks_end = false;
  if (!take_seat()) {
    submit(operation);
    wait(*operation);
    return;
  }
  ++pending_;
  begin(operation);
  drive(operation.get());
  leave_seat();
  if (operation->error) rethrow(operation->error);
}

void Engine::start(const std::shared_ptr<Operation>& operation) {
  operation->asks_end = true;
  if (!take_seat()) {
    submit(operation);
    return;
  }
  ++pending_;
  begin(operation);
  guarded([this] { step(); });
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
  if (operation.error) rethrow(operation.error);
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
  std::optional<std::string> abort;
  {
    const std::lock_guard lock(submit_mutex_);
    taken.swap(submissions_);
    abort.swap(abort_);
  }
  if (abort) fail(ErrorKind::usage, fmt::format("{}: {}", parts_.names[parts_.rank], *abort), {parts_.rank});
  for (const auto& operation : taken) begin(operation);
  return true;
}

// Others wait for word of what was under way. Who closes gives them a moment for it, and no more.
bool Engine::owes() const { return !closing_.load() && host_ && host_->owes(); }

void Engine::leave_seat() {
  const bool needed = owes() || (tcp_ && tcp_->has_guests() && !helper_watches_guests_.load());
  driven_.store(false);
  if (pending_.load() == 0 && !needed) return;
  if (!helper_needed_.exchange(true)) wake_helper();
}

void Engine::wake_helper() {
  const std::uint64_t once = 1;
  [[maybe_unused]] const ssize_t bytes = ::write(helper_event_.get(), &once, sizeof once);
}

// When nobody drives, it sleeps until there is something to drive, somebody comes to the door, or one who is there has
// taken too long.
void Engine::drive_when_needed() {
  constexpr auto kPause = 100ms;
  int door = door_.get();
  bool pauses = false;  // others drive, and look at the door too; or nothing can be done there
  auto look_at = Clock::time_point::max();
  while (true) {
    const auto until = pauses ? Clock::now() + kPause : look_at;
    std::array<pollfd, 2> look = {{{helper_event_.get(), POLLIN, 0}, {pauses ? -1 : door, POLLIN, 0}}};
    ::poll(look.data(), look.size(), rendezvous::poll_time(until));
    pauses = false;
    std::uint64_t calls = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(helper_event_.get(), &calls, sizeof calls);
    if (helper_ends_.load()) return;
    const bool needed = helper_needed_.exchange(false);
    const bool somebody_came = look[1].revents != 0;
    if (!needed && !somebody_came && Clock::now() < look_at) continue;
    if (!take_seat()) {
      pauses = somebody_came;
      look_at = door < 0 ? Clock::time_point::max() : Clock::now() + kPause;  // They may leave guests there.
      helper_watches_guests_.store(door >= 0);
      continue;
    }
    if (needed) drive(nullptr);
    const transport::Greeted greeted = greet();
    if (!greeted.open) door = -1;
    pauses = somebody_came && !greeted.any;
    look_at = greeted.again;
    helper_watches_guests_.store(look_at != Clock::time_point::max());
    leave_seat();
  }
}

transport::Greeted Engine::greet() {
  transport::Greeted greeted{.open = false};
  guarded([&] {
    if (tcp_) greeted = tcp_->greet();
    if (failing_) shut_down();
  });
  return greeted;
}

// Whatever else goes wrong while working, as when there is no memory left, ends all operations: it can't be said whose
// fault it was, and nobody may wait for a thread that has gone.
template <typename Work>
void Engine::guarded(const Work& work) {
  try {
    work();
  } catch (const std::exception& error) {
    running_ready_ = false;
    const bool usage = dynamic_cast<const UsageError*>(&error) != nullptr;
    fail(usage ? ErrorKind::usage : ErrorKind::system, parts_.names[parts_.rank] + ": " + error.what(), {parts_.rank});
    if (failing_) shut_down();
  }
}

// Until the operation is done; without one, until nothing is under way.
void Engine::drive(const Operation* until) {
  guarded([&] { drive_on(until); });
}

void Engine::begin(const std::shared_ptr<Operation>& operation) {
  guarded([&] { launch(operation); });
}

void Engine::drive_on(const Operation* until) {
  Clock::time_point idle_since{};
  int idle_steps = 0;
  // Looking at the clock costs as much as looking for messages in memory: not every time.
  const int steps_per_look = parts_.crowded || tcp_ ? 1 : 32;
  while (until != nullptr ? !until->is_done() : pending_.load() > 0 || owes()) {
    // Somebody else's deadline must come even if there is always something to do.
    constexpr unsigned kStepsPerTick = 4096;
    if (++steps_ % kStepsPerTick == 0) {
      const auto now = Clock::now();
      start_clocks(now);
      if (now >= next_tick()) tick(now);
    }
    if (step()) {
      if (idle_since != Clock::time_point{}) patience_ = std::min(kMostPatience, patience_ + patience_ / 4);
      idle_steps = 0;
      idle_since = {};
    } else if (until == nullptr) {
      // Nobody waits for this thread, but the program may well have work for its core.
      sleep();
    } else if (++idle_steps % steps_per_look == 0) {
      if (idle_since == Clock::time_point{}) {
        idle_since = Clock::now();
        start_clocks(idle_since);
      }
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

// Whether looking pays can't be known: ranks that are alone on their host may share its cores with others' work. So a
// rank that slept for long looks for half as long next time, and one that hardly slept, for twice as long.
void Engine::idle(Clock::time_point since) {
  if (patience_.count() > 0 && Clock::now() - since < patience_) {
    if (parts_.crowded) ::sched_yield();
    return;
  }
  sleep();
  if (Clock::now() - since > 2 * kMostPatience) {
    patience_ = patience_ < 1us ? Clock::duration(0) : patience_ / 2;
  } else {
    patience_ = std::min(kMostPatience, std::max<Clock::duration>(1us, patience_ * 2));
  }
}

Clock::time_point Engine::next_tick() const {
  Clock::time_point next = last_tick_ + kTick;
  for (const auto& operation : active_) next = std::min({next, operation->deadline, operation->asks_at});
  return next;
}

// An operation's time runs from when this rank first had to wait for something.
void Engine::start_clocks(Clock::time_point now) {
  for (const auto& operation : active_) {
    if (operation->started != Clock::time_point{}) continue;
    record(*operation);
    operation->started = now;
    operation->deadline = now + operation->patience;
    // Before its deadline, so that it is known then who is there.
    operation->asks_at = now + std::min<Clock::duration>(200ms, operation->patience / 3);
  }
}

void Engine::sleep() {
  start_clocks(Clock::now());
  const Clock::time_point until = next_tick();
  const auto left = [&] {
    const auto time = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    return std::max(time, std::chrono::milliseconds(0));
  };
  if (!tcp_) {
    bell_->prepare();
    if (step() || submitted_.load()) {
      bell_->stay_awake();
    } else {
      bell_->sleep(until);
    }
  } else {
    bell_->prepare_for_event();
    // Sockets need no last look: what came before is as good a reason to return from wait() as what comes after.
    const bool stays = submitted_.load() || (host_ && host_->progress());
    if (!stays) tcp_->wait(left());
    bell_->stay_awake();
    take_submitted();
    if (failing_) shut_down();
  }
  const auto now = Clock::now();
  if (now >= until) tick(now);
}

void Engine::tick(Clock::time_point now) {
  last_tick_ = now;
  if (host_) host_->check_processes();
  if (tcp_) check_fates(now);
  if (tcp_ && now >= next_link_check_) {
    next_link_check_ = now + 1s;
    tcp_->check_links();
  }
  const auto waiting = active_;  // what is asked may be answered at once, and end operations
  for (const auto& operation : waiting) {
    if (failing_) break;
    if (operation->is_done()) continue;
    if (now >= operation->deadline) {
      look_at_other_hosts(*operation);
      if (failing_ || operation->is_done()) continue;
      fail(ErrorKind::timeout, waiting_for(*operation), missing_in(*operation));
    } else if (now >= operation->asks_at) {
      ask_others(*operation);
    }
  }
}

// What a rank has forked may hold its connections open after its end, but who started it knows. Its last messages may
// still be on their way.
void Engine::check_fates(Clock::time_point now) {
  constexpr auto kLastMessages = 500ms;
  if (!parts_.board->watched()) return;
  for (int peer = 0; peer < parts_.ranks; ++peer) {
    if (routes_[peer] != tcp_.get() || peer == parts_.rank || !gone_[peer].empty()) continue;
    if (parts_.board->fate(peer).empty()) continue;
    if (fated_[peer] == Clock::time_point{}) fated_[peer] = now;
    if (now - fated_[peer] >= kLastMessages) lost(peer, "its process has ended");
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
