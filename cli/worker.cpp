#include "cli/worker.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <string_view>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kTimeToStart{60'000};
constexpr std::string_view kRefusal = "error,";

struct Child {
  pid_t id = 0;
  Descriptor ended;  ///< readable as soon as the process has ended
};

// In a child, which is to hear the signals that this process holds back.
void release_signals() {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Writes to a process that may have ended, without the signal that would end this one.
void write_quietly(int descriptor, std::string_view text) {
  sigset_t broken_pipe;
  sigset_t before;
  ::sigemptyset(&broken_pipe);
  ::sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, &before);
  if (::write(descriptor, text.data(), text.size()) < 0 && errno == EPIPE) {
    const timespec at_once{};
    ::sigtimedwait(&broken_pipe, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

// -1 if it is none.
double parse_microseconds(const std::string& text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size() ? value : -1;
}

}  // namespace

/// The processes, and the pipes to them.
class Worker::Talk {
 public:
  Talk(std::string name, const std::vector<Command>& commands, const Options& options)
      : name_(std::move(name)), interrupts_(options.interrupts) {
    Pipe input;
    Pipe output;
    Pipe errors;
    try {
      for (Command command : commands) {
        const bool first = children_.empty();
        command.input = first ? input.out.get() : kNull;
        command.output = first ? output.in.get() : kNull;
        command.error = errors.in.get();
        options.before_start(static_cast<int>(children_.size()));
        start_child(std::move(command));
      }
    } catch (...) {
      end();
      throw;
    }
    input_ = std::move(input.in);
    output_ = std::move(output.out);
    errors_ = std::move(errors.out);
    // One rank's end may leave nothing to read while another keeps the pipe open: no read may wait.
    for (const Descriptor* end : {&output_, &errors_}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  }
  ~Talk() { end(); }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  void tell(const std::string& line) {
    if (!broken_.empty()) throw PeerError(broken_);
    write_quietly(input_.get(), line + "\n");
  }

  // The next line of rank 0 that is an answer. Others are the launcher's: MPICH's explains itself there.
  std::string hear(const std::string& question, Milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    bool ended = false;
    while (true) {
      for (std::size_t end = 0; (end = heard_.find('\n')) != std::string::npos;) {
        std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        if (line.starts_with(name_) || line.starts_with(kRefusal)) return line;
        complaints_ += line + "\n";
      }
      if (ended) fail<PeerError>("ended before it answered", question);
      if (Clock::now() >= deadline) {
        fail<TimeoutError>(fmt::format("gave no answer in {} s", std::chrono::duration<double>(limit).count()),
                           question);
      }
      ended = listen(deadline);
    }
  }

  template <typename Failure>
  [[noreturn]] void fail(const std::string& what, const std::string& question) {
    const std::string text = complaints_.substr(0, complaints_.find_last_not_of(" \n") + 1);
    const std::string said = text.empty() ? "" : fmt::format("; it said: {}", text);
    broken_ = fmt::format("{} {} to '{}'{}", name_, what, question, said);
    throw Failure(broken_);
  }

 private:
  // In a group of its own: the terminal's Ctrl-C is for this program, which then ends what it has started. Should it be
  // killed, mpirun, when it is told to end, ends its ranks, and a rank itself.
  void start_child(Command command) {
    command.own_group = true;
    command.death_signal = SIGTERM;
    const Started started = start(command, release_signals);
    const int ended = static_cast<int>(::syscall(SYS_pidfd_open, started.pid, 0));
    children_.push_back({.id = started.pid, .ended = Descriptor(ended)});
    if (started.error == 0) return;
    broken_ = explain_failed_start(command.words.front(), started.error);
    throw SystemError(broken_);
  }

  // Takes in what there is to read, waiting for something to happen if there is nothing. Whether a process has ended:
  // then all that it wrote has been read.
  bool listen(Clock::time_point deadline) {
    std::vector<pollfd> events{{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}, {-1, POLLIN, 0}};
    if (interrupts_ != nullptr) events[2].fd = interrupts_->descriptor();
    const std::size_t first_child = events.size();
    for (const Child& child : children_) events.push_back({child.ended.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    ::poll(events.data(), events.size(), static_cast<int>(std::max<Milliseconds::rep>(0, left.count())));
    if (interrupts_ != nullptr) check_interrupts();
    const auto happened = [](const pollfd& event) { return event.revents != 0; };
    const bool ended = std::any_of(events.begin() + static_cast<std::ptrdiff_t>(first_child), events.end(), happened);
    if (ended) settle();
    const bool open = take(output_, heard_);
    take(errors_, complaints_);
    constexpr std::size_t kMostComplaints = 2000;
    if (complaints_.size() > kMostComplaints) complaints_.erase(0, complaints_.size() - kMostComplaints);
    return ended || !open;
  }

  void check_interrupts() {
    try {
      interrupts_->check();
    } catch (const Interrupted& interrupted) {
      broken_ = interrupted.what();  // Nobody waits for what it does now.
      throw;
    }
  }

  // When one rank has ended, the others soon say why they do too.
  void settle() {
    const auto until = Clock::now() + Milliseconds(300);
    for (bool open = true; open && Clock::now() < until;) {
      pollfd event{errors_.get(), POLLIN, 0};
      const auto left = std::chrono::ceil<Milliseconds>(until - Clock::now());
      open = ::poll(&event, 1, static_cast<int>(left.count())) > 0 && take(errors_, complaints_);
    }
  }

  // Appends what can be read, which may be nothing yet; false at the end.
  static bool take(const Descriptor& from, std::string& to) {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(from.get(), bytes.data(), bytes.size());
    if (count > 0) to.append(bytes.data(), static_cast<std::size_t>(count));
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }

  // Asks, then tells, then forces all processes to end. mpirun ends its ranks when it is told to.
  void end() {
    input_.close();
    const Milliseconds patience(broken_.empty() ? 2000 : 100);
    if (wait_for_end(patience)) return;
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (const Child& child : children_) ::kill(child.id, signal);
      if (wait_for_end(Milliseconds(3000))) return;
    }
  }

  // Reaps those that have ended; whether all have.
  bool wait_for_end(Milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    while (true) {
      std::erase_if(children_, [](const Child& child) { return ::waitpid(child.id, nullptr, WNOHANG) != 0; });
      if (children_.empty()) return true;
      if (Clock::now() >= deadline) return false;
      // What is still being said must be read, or who says it would wait for that.
      std::vector<pollfd> events{{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
      for (const Child& child : children_) events.push_back({child.ended.get(), POLLIN, 0});
      ::poll(events.data(), events.size(), 50);
      std::string ignored;
      if (events[0].revents != 0 && !take(output_, ignored)) output_.close();
      if (events[1].revents != 0 && !take(errors_, ignored)) errors_.close();
    }
  }

  std::string name_;
  const Interrupts* interrupts_;
  std::vector<Child> children_;
  Descriptor input_;
  Descriptor output_;
  Descriptor errors_;
  std::string heard_;       // of the first process, not yet taken line by line
  std::string complaints_;  // the end of what all processes wrote to stderr
  std::string broken_;      // why it is of no more use; empty if it is
};

Worker::Worker(std::string name, const std::vector<Command>& commands, const Options& options)
    : name_(std::move(name)), talk_(std::make_unique<Talk>(name_, commands, options)) {}

Worker::~Worker() = default;

void Worker::wait_until_ready(int ranks) {
  const std::string question = "are you ready";
  const std::string line = talk_->hear(question, kTimeToStart);
  if (line != fmt::format("{},ready,{}", name_, ranks)) {
    talk_->fail<ProtocolError>(fmt::format("began with '{}', where it should say that it is ready", line), question);
  }
}

Timing Worker::run(const std::string& collective, std::uint64_t bytes, int repeats, const std::string& how,
                   Milliseconds limit) {
  const std::string question = fmt::format("{} {} {}{}{}", collective, bytes, repeats, how.empty() ? "" : " ", how);
  talk_->tell(question);
  const std::string answer = talk_->hear(question, limit);
  if (answer.starts_with(kRefusal)) throw UsageError(fmt::format("{}: {}", name_, answer.substr(kRefusal.size())));
  const std::vector<std::string> fields = split(answer);
  if (fields.size() >= 6 && fields[1] == collective && fields[3] == std::to_string(bytes)) {
    Timing timing{.median_us = parse_microseconds(fields[4]), .min_us = parse_microseconds(fields[5])};
    if (fields.size() > 6) timing.algorithm = fields[6];
    if (timing.median_us >= 0 && timing.min_us >= 0) return timing;
  }
  talk_->fail<ProtocolError>(fmt::format("answered '{}'", answer), question);
}

}  // namespace trireme::cli
