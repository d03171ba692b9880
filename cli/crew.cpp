#include "cli/crew.h"

#include "cli/cores.h"
#include "cli/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

bool sets(const std::vector<std::string>& variables, const std::string& name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const std::string& variable) { return variable.starts_with(name + "="); });
}

}  // namespace

void Crew::Rank::signal(int number_of_signal) const { ::kill(own_group ? -pid : pid, number_of_signal); }

Crew::Crew(Ends ends, Sink& out, Sink& err, Events events, std::function<void()> in_child)
    : ends_(ends),
      out_(out),
      err_(err),
      events_(std::move(events)),
      in_child_(std::move(in_child)),
      input_(ends == Ends::own ? kOwn : kNull) {}

Crew::~Crew() { kill_and_reap(); }

void Crew::kill_and_reap() {
  for (const Rank& rank : ranks_) {
    if (!rank.ended) rank.signal(SIGKILL);
  }
  guardian_.reset();  // From here on their numbers may be those of others.
  for (const Rank& rank : ranks_) {
    while (::waitpid(rank.pid, nullptr, 0) < 0 && errno == EINTR) continue;
  }
}

void Crew::start(const Share& share) {
  report_ = share.report;
  board_ = share.count < share.ranks ? Board::with_bell(share.ranks) : std::make_unique<Board>(share.ranks);
  guardian_ = std::make_unique<Guardian>(static_cast<std::size_t>(share.count));
  const Cores cores;
  const bool pin = share.pin && cores.count() >= share.count;
  const std::vector<std::string> common = common_environment(share, cores.count());
  ranks_.reserve(static_cast<std::size_t>(share.count));
  bool pinned = true;
  int error = 0;
  for (int rank = 0; rank < share.count && error == 0; ++rank) {
    if (pin) pinned = cores.bind_to_share(rank, share.count) && pinned;
    error = start_rank(share, rank, common);
  }
  if (pin) cores.unbind();
  if (!pinned) events_.remark("this system does not let ranks be pinned to cores; they share all of them");
  if (error != 0) {
    give_up_start(share.command.front(), error);
    return;
  }
  std::vector<Alive> alive;
  for (const Rank& rank : ranks_) alive.push_back({.rank = rank.number, .pid = rank.pid});
  events_.alive(alive);
}

std::vector<std::string> Crew::common_environment(const Share& share, int cores) const {
  std::vector<std::string> variables = share.variables;
  const int threads = std::max(1, cores / share.count);
  for (const char* const name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing changes the environment
    if (value == nullptr && !sets(variables, name)) variables.push_back(fmt::format("{}={}", name, threads));
  }
  variables.push_back(fmt::format("WORLD_SIZE={}", share.ranks));
  variables.push_back(fmt::format("LOCAL_WORLD_SIZE={}", share.count));
  variables.push_back(fmt::format("TRIREME_BOARD={}", board_->descriptor()));
  return variables;
}

// Returns 0, or why the program can't be executed.
int Crew::start_rank(const Share& share, int number, const std::vector<std::string>& common) {
  const bool input = share.first + number == 0;
  const bool pipes = ends_ == Ends::pipes || share.prefix;
  Command command{.words = share.command, .variables = common};
  command.variables.push_back(fmt::format("RANK={}", share.first + number));
  command.variables.push_back(fmt::format("LOCAL_RANK={}", number));
  command.input = input ? input_ : kNull;
  // Only one group can read from a terminal.
  command.own_group = command.input != kOwn || ::isatty(STDIN_FILENO) == 0;
  std::vector<Pipe> output(pipes ? 2 : 0);
  if (pipes) {
    command.output = output[0].in.get();
    command.error = output[1].in.get();
  }
  const Started started = cli::start(command, [this, &command] {
    in_child_();
    if (command.own_group) guardian_->guard_this();
    for (const int shared : {board_->descriptor(), board_->bell()}) {
      if (shared >= 0) ::fcntl(shared, F_SETFD, 0);  // In the child alone: it is closed on exec here.
    }
  });
  Rank& rank =
      ranks_.emplace_back(Rank{.number = share.first + number, .pid = started.pid, .own_group = command.own_group});
  const std::string prefix = fmt::format("[{:{}}] ", rank.number, fmt::formatted_size("{}", share.ranks - 1));
  for (Pipe& pipe : output) {
    Sink& sink = &pipe == output.data() ? out_ : err_;
    ::fcntl(pipe.out.get(), F_SETFL, O_NONBLOCK);
    rank.streams.push_back(
        {std::move(pipe.out), share.prefix ? Lines(prefix, sink) : Lines::as_they_come(sink), &sink});
  }
  return started.error;
}

void Crew::give_up_start(const std::string& program, int error) {
  std::string hint;
  std::error_code ignored;
  if (error == ENOENT && program.find('/') == std::string::npos && std::filesystem::exists(program, ignored)) {
    hint = fmt::format("; did you mean './{}'?", program);
  }
  kill_and_reap();
  ranks_.clear();
  const bool elsewhere = ends_ == Ends::pipes;
  const std::string why =
      elsewhere ? fmt::format("{} can't be started: {}; it has to be on each host, at the same path or in PATH there",
                              program, std::generic_category().message(error))
                : explain_failed_start(program, error);
  events_.failed(why + hint, error == ENOENT ? kNotFound : kNotExecutable, Loss::not_started);
}

std::vector<int> Crew::running() const {
  std::vector<int> numbers;
  for (const Rank& rank : ranks_) {
    if (!rank.ended) numbers.push_back(rank.number);
  }
  return numbers;
}

bool Crew::quiet() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended && rank.streams.empty(); });
}

void Crew::watch(Poll& poll) {
  if (board_ && board_->bell() >= 0) poll.on(board_->bell(), POLLIN, [this] { hear_question(); });
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) {
      if (stream.sink->full()) continue;
      poll.on(stream.descriptor.get(), POLLIN, [&stream] {
        if (stream.descriptor) read(stream);
      });
    }
  }
}

void Crew::settle() {
  for (Rank& rank : ranks_) {
    std::erase_if(rank.streams, [](const Stream& stream) { return !stream.descriptor; });
  }
}

// False if there was nothing.
bool Crew::read(Stream& stream) {
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
void Crew::drain(Rank& rank) {
  constexpr int kMostReads = 16;
  for (Stream& stream : rank.streams) {
    for (int i = 0; i < kMostReads && stream.descriptor && read(stream); ++i) continue;
  }
}

void Crew::close(Stream& stream) {
  stream.lines.end();
  stream.descriptor.close();
}

void Crew::look_at_children() {
  look_for_stopped();
  look_for_ended();
}

void Crew::look_for_stopped() {
  std::vector<Alive> changed;
  for (Rank& rank : ranks_) {
    siginfo_t info{};
    if (rank.ended || ::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) != 0)
      continue;
    if (info.si_pid == 0) continue;
    rank.stopped_by = info.si_code == CLD_STOPPED ? info.si_status : 0;
    changed.push_back({.rank = rank.number, .pid = rank.pid, .stopped_by = rank.stopped_by});
  }
  if (!changed.empty()) events_.alive(changed);
}

void Crew::look_for_ended() {
  std::vector<End> ended;
  for (Rank& rank : ranks_) {
    if (rank.ended) continue;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
      fail_with_errno("waitid");
    if (info.si_pid == 0) continue;
    rank.ended = true;
    drain(rank);  // What it said comes before what is said of it.
    look_at(rank);
    ended.push_back({.rank = rank.number,
                     .pid = info.si_pid,
                     .exited = info.si_code == CLD_EXITED,
                     .status = info.si_status,
                     .dumped = info.si_code == CLD_DUMPED});
  }
  // Of those that ended together, the killed are rather the cause, and those that exited its victims.
  std::stable_partition(ended.begin(), ended.end(), [](const End& end) { return !end.exited; });
  if (!ended.empty()) events_.ended(ended);
}

void Crew::look() {
  for (Rank& rank : ranks_) {
    if (!rank.ended) look_at(rank);
  }
}

void Crew::look_at(Rank& rank) {
  Recorded recorded{
      .rank = rank.number, .recent = board_->recent(rank.number, kRecent), .blamed = board_->blamed(rank.number)};
  if (report_) recorded.records = board_->timed(rank.number, rank.recorded);
  if (!recorded.records.empty()) rank.recorded = recorded.records.back().number + 1;
  events_.recorded(recorded);
}

void Crew::hear_question() {
  std::uint64_t times = 0;
  if (::read(board_->bell(), &times, sizeof times) == sizeof times) events_.asked();
}

void Crew::tell_fate(int rank, const std::string& how) {
  if (board_ && rank >= 0 && rank < board_->ranks()) board_->tell_fate(rank, how);
}

void Crew::tell_last(int rank, const std::optional<Record>& last) {
  if (board_ && rank >= 0 && rank < board_->ranks()) board_->tell_last(rank, last);
}

void Crew::pass_on(int signal, bool by_terminal) {
  for (const Rank& rank : ranks_) {
    if (!rank.ended && (rank.own_group || !by_terminal)) rank.signal(signal);
  }
}

void Crew::end() {
  for (const Rank& rank : ranks_) {
    if (rank.ended && !rank.own_group) continue;
    rank.signal(SIGTERM);
    rank.signal(SIGCONT);  // Who is stopped would not hear it.
  }
}

void Crew::kill() {
  for (const Rank& rank : ranks_) {
    if (!rank.ended || rank.own_group) rank.signal(SIGKILL);
  }
}

void Crew::finish() {
  for (Rank& rank : ranks_) {
    drain(rank);
    for (Stream& stream : rank.streams) {
      if (stream.descriptor) close(stream);
    }
  }
}

}  // namespace trireme::cli
