#include "cli/launcher.h"

#include "cli/cores.h"
#include "cli/lines.h"
#include "cli/process.h"
#include "rendezvous/guard.h"
#include "rendezvous/meeting.h"
#include "rendezvous/server.h"
#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <memory>
#include <poll.h>
#include <string_view>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string name_of_signal(int signal) { return fmt::format("signal {} ({})", signal, ::strsignal(signal)); }

// A port for what programs do with MASTER_PORT. Bound but not listened at, it is nobody else's, and still free for a
// rank that listens there with SO_REUSEADDR, as servers do.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    const rendezvous::Address address = rendezvous::resolve("127.0.0.1", 0).front();
    if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
      fail_with_errno("no port");
    }
  }
  std::uint16_t number() const { return rendezvous::local_port(socket_); }

 private:
  Descriptor socket_;
};

// Strangers at the rendezvous are told of by its own thread, in a line at once.
Guard guard_of(const Launch& options) {
  Guard guard = rendezvous::guard_for_ranks();
  guard.encrypt = guard.encrypt || options.encrypt;
  guard.notice = [](const std::string& text) {
    const std::string line = fmt::format("trireme run: {}\n", text);
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  };
  return guard;
}

// How the output of a rank comes.
struct Stream {
  Descriptor descriptor;
  Lines lines;
  Sink* sink;
};

struct Rank {
  int number = 0;
  pid_t pid = -1;
  bool own_group = true;  // with all that it starts
  bool ended = false;     // though still there as a zombie, so that its number is not given to another
  std::vector<Stream> streams{};

  void signal(int number_of_signal) const { ::kill(own_group ? -pid : pid, number_of_signal); }
};

class Launcher {
 public:
  explicit Launcher(const Launch& options)
      : options_(options),
        guard_(guard_of(options)),
        server_("127.0.0.1", 0, options.ranks, rendezvous::Meetings::many, "trireme run", guard_) {
    struct stat out {};
    struct stat err {};
    const bool same = ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
                      out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    if (same) err_ = &out_;  // Or a long line of one might have one of the other in it.
    if (options.timeout) timeout_at_ = after(*options.timeout);
  }

  ~Launcher() {
    for (const Rank& rank : ranks_) {
      if (!rank.ended) rank.signal(SIGKILL);
    }
    for (const Rank& rank : ranks_) reap(rank);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run() {
    if (!start_all()) ending_ = true;
    while (!finished()) turn();
    if (ending_) {
      // What ranks have started, and left behind. Their groups are theirs as long as the zombies are there.
      for (const Rank& rank : ranks_) {
        if (rank.own_group) rank.signal(SIGKILL);
      }
    }
    return status_;
  }

 private:
  static Clock::time_point after(Seconds time) {
    constexpr Seconds kLongest = std::chrono::hours(24 * 365);
    return Clock::now() + std::chrono::ceil<Clock::duration>(std::min(time, kLongest));
  }

  static void reap(const Rank& rank) {
    while (::waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) continue;
  }

  void say(const std::string& message) { err_->add(fmt::format("trireme run: {}\n", message)); }

  bool start_all() {
    const Cores cores;
    const bool pin = options_.pin && cores.count() >= options_.ranks;
    const std::vector<std::string> common = common_environment(std::max(1, cores.count() / options_.ranks));
    ranks_.reserve(static_cast<std::size_t>(options_.ranks));
    bool pinned = true;
    int error = 0;
    for (int rank = 0; rank < options_.ranks && error == 0; ++rank) {
      if (pin) pinned = cores.bind_to_share(rank, options_.ranks) && pinned;
      error = start_rank(rank, common);
    }
    if (pin) cores.unbind();
    if (!pinned) say("this system does not let ranks be pinned to cores; they share all of them");
    if (error != 0) give_up_start(error);
    return error == 0;
  }

  std::vector<std::string> common_environment(int threads) const {
    std::vector<std::string> variables;
    const auto is_set = [](const char* name) {
      return std::getenv(name) != nullptr;  // NOLINT(concurrency-mt-unsafe): nothing changes the environment
    };
    for (const char* const name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
      if (!is_set(name)) variables.push_back(fmt::format("{}={}", name, threads));
    }
    variables.push_back(fmt::format("WORLD_SIZE={}", options_.ranks));
    variables.push_back(fmt::format("LOCAL_WORLD_SIZE={}", options_.ranks));
    variables.emplace_back("MASTER_ADDR=127.0.0.1");
    variables.push_back(fmt::format("MASTER_PORT={}", master_port_.number()));
    variables.push_back(fmt::format("TRIREME_RENDEZVOUS=127.0.0.1:{}", server_.port()));
    std::ranges::copy(rendezvous::variables_for_ranks(guard_), std::back_inserter(variables));
    return variables;
  }

  // Returns 0, or why the program can't be executed.
  int start_rank(int number, const std::vector<std::string>& common) {
    Command command{.words = options_.command, .variables = common};
    command.variables.push_back(fmt::format("RANK={}", number));
    command.variables.push_back(fmt::format("LOCAL_RANK={}", number));
    command.own_group = number > 0 || ::isatty(STDIN_FILENO) == 0;  // Only one group can read from a terminal.
    if (number > 0) command.input = kNull;
    std::vector<Pipe> output(options_.prefix ? 2 : 0);
    if (options_.prefix) {
      command.output = output[0].in.get();
      command.error = output[1].in.get();
    }
    const Started started = start(command, [this] {
      limit_.restore();
      signals_.restore();
    });
    Rank& rank = ranks_.emplace_back(Rank{.number = number, .pid = started.pid, .own_group = command.own_group});
    const std::string prefix = fmt::format("[{:{}}] ", number, fmt::formatted_size("{}", options_.ranks - 1));
    for (Pipe& pipe : output) {
      Sink& sink = &pipe == output.data() ? out_ : *err_;
      ::fcntl(pipe.out.get(), F_SETFL, O_NONBLOCK);
      rank.streams.push_back({std::move(pipe.out), Lines(prefix, sink), &sink});
    }
    return started.error;
  }

  void give_up_start(int error) {
    const std::string& program = options_.command.front();
    std::string hint;
    std::error_code ignored;
    if (error == ENOENT && program.find('/') == std::string::npos && std::filesystem::exists(program, ignored)) {
      hint = fmt::format("; did you mean './{}'?", program);
    }
    say(explain_failed_start(program, error) + hint);
    status_ = error == ENOENT ? kNotFound : kNotExecutable;
    for (const Rank& rank : ranks_) rank.signal(SIGKILL);
  }

  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
  }

  bool streams_open() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.streams.empty(); });
  }

  bool pending() const { return out_.pending() || err_->pending(); }

  bool finished() const {
    if (!all_ended()) return false;
    if (give_up_at_ && Clock::now() >= *give_up_at_) return true;
    return !streams_open() && !pending();
  }

  // Ranks have ended, and what they started is not waited for, or no longer than the grace.
  bool nothing_more_comes() const { return (!ending_ || give_up_at_) && all_ended(); }

  void turn() {
    std::vector<pollfd> entries{{signals_.descriptor(), POLLIN, 0}};
    std::vector<Stream*> polled;
    for (const Sink* sink : {&out_, &own_err_}) {
      if (sink->pending()) entries.push_back({sink->descriptor(), POLLOUT, 0});
    }
    const std::size_t sinks_end = entries.size();
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) {
        if (stream.sink->full()) continue;
        entries.push_back({stream.descriptor.get(), POLLIN, 0});
        polled.push_back(&stream);
      }
    }
    if (::poll(entries.data(), entries.size(), wait_time()) < 0 && errno != EINTR) fail_with_errno("poll");
    if (entries[0].revents != 0) take_signals();
    for (std::size_t i = 1; i < sinks_end; ++i) {
      if (entries[i].revents != 0) (entries[i].fd == out_.descriptor() ? out_ : own_err_).write_some();
    }
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (entries[sinks_end + i].revents != 0 && polled[i]->descriptor) read(*polled[i]);
    }
    const bool over = nothing_more_comes();
    for (Rank& rank : ranks_) {
      if (over) drain(rank);
      for (Stream& stream : rank.streams) {
        if (over) close(stream);
      }
      std::erase_if(rank.streams, [](const Stream& stream) { return !stream.descriptor; });
    }
    if (out_.broken() && !ending_) {
      say("nobody reads the output any more; ending all ranks");
      status_ = 128 + SIGPIPE;
      end_all();
    }
    look_at_the_clock();
  }

  int wait_time() const {
    auto next = Clock::time_point::max();
    for (const auto& time : {timeout_at_, kill_at_, all_ended() ? give_up_at_ : std::nullopt}) {
      if (time) next = std::min(next, *time);
    }
    return next == Clock::time_point::max() ? -1 : rendezvous::poll_time(next);
  }

  void look_at_the_clock() {
    const auto now = Clock::now();
    if (timeout_at_ && now >= *timeout_at_) {
      timeout_at_.reset();
      if (!all_ended() && !ending_) {
        say(fmt::format("the time of {} is over; ending all ranks", format_time(*options_.timeout)));
        status_ = kTimedOut;
        end_all();
      }
    }
    if (kill_at_ && now >= *kill_at_) kill_all(fmt::format("within {}", format_time(options_.grace)));
  }

  // False if there was nothing.
  static bool read(Stream& stream) {
    std::array<char, std::size_t{64} * 1024> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
    const ssize_t count = ::read(stream.descriptor.get(), buffer.data(), buffer.size());
    if (count > 0) {
      stream.lines.add({buffer.data(), static_cast<std::size_t>(count)});
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      close(stream);
    }
    return count > 0;
  }

  // Takes what is there. A pipe holds no more than this, unless something that the rank has left behind still fills it.
  static void drain(Rank& rank) {
    constexpr int kMostReads = 16;
    for (Stream& stream : rank.streams) {
      for (int i = 0; i < kMostReads && stream.descriptor && read(stream); ++i) continue;
    }
  }

  static void close(Stream& stream) {
    stream.lines.end();
    stream.descriptor.close();
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.descriptor(), &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      // The terminal sends to all of its group itself.
      const bool by_terminal = info.ssi_code == SI_KERNEL;
      switch (signal) {
        case SIGCHLD: take_ended(); break;
        case SIGTSTP:
          pass_on(signal, by_terminal);
          ::raise(SIGSTOP);
          break;
        case SIGINT:
          pass_on(signal, by_terminal);
          if (std::exchange(interrupted_, true)) kill_all("at the first interrupt");
          begin_grace();
          break;
        case SIGTERM:
        case SIGQUIT:
          pass_on(signal, by_terminal);
          begin_grace();
          break;
        default: pass_on(signal, by_terminal);
      }
    }
  }

  void pass_on(int signal, bool by_terminal) const {
    for (const Rank& rank : ranks_) {
      if (!rank.ended && (rank.own_group || !by_terminal)) rank.signal(signal);
    }
  }

  void take_ended() {
    std::vector<siginfo_t> ended;
    for (Rank& rank : ranks_) {
      if (rank.ended) continue;
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        fail_with_errno("waitid");
      if (info.si_pid == 0) continue;
      rank.ended = true;
      drain(rank);  // What it said comes before what is said of it.
      ended.push_back(info);
    }
    // Of those that ended together, the killed are rather the cause, and those that exited its victims.
    std::stable_partition(ended.begin(), ended.end(), [](const siginfo_t& info) { return info.si_code != CLD_EXITED; });
    for (const siginfo_t& info : ended) conclude(info);
  }

  void conclude(const siginfo_t& info) {
    const bool exited = info.si_code == CLD_EXITED;
    const int status = exited ? info.si_status : 128 + info.si_status;
    if (status == 0) return;
    if (status_ == 0) status_ = status;
    if (ending_) return;
    const auto rank =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& one) { return one.pid == info.si_pid; });
    const std::string how = exited ? fmt::format("exited with status {}", status)
                                   : fmt::format("was killed by {}{}", name_of_signal(info.si_status),
                                                 info.si_code == CLD_DUMPED ? ", core dumped" : "");
    say(fmt::format("rank {} (pid {}) {}{}", rank->number, rank->pid, how,
                    all_ended() ? "" : "; ending the other ranks"));
    end_all();
  }

  void end_all() {
    for (const Rank& rank : ranks_) {
      if (rank.ended && !rank.own_group) continue;
      rank.signal(SIGTERM);
      rank.signal(SIGCONT);  // Who is stopped would not hear it.
    }
    begin_grace();
  }

  void begin_grace() {
    ending_ = true;
    if (!kill_at_ && !give_up_at_) kill_at_ = after(options_.grace);
  }

  void kill_all(const std::string& when) {
    kill_at_.reset();
    if (give_up_at_) return;
    std::vector<int> stubborn;
    for (const Rank& rank : ranks_) {
      if (!rank.ended) stubborn.push_back(rank.number);
      if (!rank.ended || rank.own_group) rank.signal(SIGKILL);
    }
    if (!stubborn.empty()) {
      say(fmt::format("{} did not end {}; killing {}", rendezvous::list_ranks(stubborn), when,
                      stubborn.size() == 1 ? "it" : "them"));
    }
    give_up_at_ = Clock::now() + std::chrono::seconds(1);
  }

  const Launch& options_;
  Signals signals_;
  FileLimit limit_;
  ReservedPort master_port_;
  const Guard guard_;
  rendezvous::Server server_;
  Sink out_{STDOUT_FILENO};
  Sink own_err_{STDERR_FILENO};
  Sink* err_ = &own_err_;
  std::vector<Rank> ranks_;
  int status_ = 0;
  bool ending_ = false;       // one way or another
  bool interrupted_ = false;  // once; twice is impatience
  std::optional<Clock::time_point> timeout_at_;
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> give_up_at_;  // on output that nobody takes, once ranks were killed
};

}  // namespace

int launch(const Launch& options) { return Launcher(options).run(); }

}  // namespace trireme::cli
