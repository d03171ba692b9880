#include "cli/peers.h"

#include "trireme/error.h"
#include "trireme/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sstream>
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kTimeToStart{60'000};
constexpr std::string_view kRefusal = "error,";

struct Library {
  std::string name;
  std::string packages;
  std::vector<std::string>
      launchers;  ///< names that only this library's mpirun has; none: ranks are started one by one
};

const std::vector<Library>& libraries() {
  static const std::vector<Library> kLibraries{
      {"openmpi", "openmpi-bin libopenmpi-dev", {"mpirun.openmpi", "orterun"}},
      {"mpich", "mpich libmpich-dev", {"mpirun.mpich", "mpiexec.hydra"}},
      {"gloo", "libgloo-dev", {}},
  };
  return kLibraries;
}

const Library& find_library(const std::string& name) {
  for (const Library& library : libraries()) {
    if (library.name == name) return library;
  }
  const std::vector<std::string> names = Peer::known();
  const std::string guess = nearest(name, names);
  if (!guess.empty()) throw UsageError(fmt::format("no peer is called '{}'; did you mean '{}'?", name, guess));
  throw UsageError(fmt::format("no peer is called '{}'; there are {}", name, fmt::join(names, ", ")));
}

[[noreturn]] void refuse_missing(const Library& library, const std::string& what) {
  throw UsageError(fmt::format(
      "{} can't be measured: there is no {}. Install {} ('tools/setup bench') and build the target 'peers'; "
      "'make bench' does both",
      library.name, what, library.packages));
}

std::string find_launcher(const Library& library) {
  const char* const path = std::getenv("PATH");
  for (const std::string& launcher : library.launchers) {
    std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      std::string candidate = (fs::path(folder) / launcher).string();
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    }
  }
  refuse_missing(library, library.launchers.front());
}

using Settings = std::vector<std::pair<std::string, std::string>>;

/// A process to be started.
struct Launch {
  std::vector<std::string> command;
  Settings environment;
};

Launch with_openmpi(std::string launcher, int ranks, const std::string& transport, std::string worker) {
  std::vector<std::string> command{std::move(launcher), "-np", std::to_string(ranks), "--oversubscribe"};
  if (transport == "tcp") {
    for (const char* word : {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"}) {
      command.emplace_back(word);
    }
  }
  command.push_back(std::move(worker));
  return {std::move(command), {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}};
}

// MPICH spins and never yields, so that two of its ranks on one core take a time slice each; unlike Open MPI it does not
// pin by itself. The worker refuses UCX_TLS where MPICH is built on something else, which would use shared memory in
// spite of it.
Launch with_mpich(std::string launcher, int ranks, const std::string& transport, std::string worker) {
  Settings environment;
  if (transport == "tcp") environment = {{"UCX_TLS", "tcp,self"}, {"UCX_NET_DEVICES", "lo"}};
  std::vector<std::string> command{std::move(launcher), "-np", std::to_string(ranks)};
  if (static_cast<unsigned>(ranks) <= std::thread::hardware_concurrency()) {
    command.insert(command.end(), {"-bind-to", "core"});
  }
  command.push_back(std::move(worker));
  return {std::move(command), std::move(environment)};
}

Launch gloo_rank(int rank, int ranks, const std::string& store, const std::string& worker) {
  return {{worker, store, "lo", "best"}, {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(ranks)}}};
}

/// A folder that goes away with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    path_ = (fs::temp_directory_path() / "trireme-peer-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) throw SystemError(fmt::format("no temporary folder {}", path_));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }

  int get() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

struct Pipe {
  Descriptor out;  ///< to read from
  Descriptor in;   ///< to write to
};

// Closed on exec, as an end that another child holds would hide that this one's other side is gone.
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError(fmt::format("no pipe: {}", std::strerror(errno)));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

struct Process {
  pid_t id = 0;
  Descriptor ended;  ///< readable as soon as the process has ended
};

std::vector<std::string> environment_with(const Settings& settings) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto replaced = [&](const auto& setting) { return text.substr(0, text.find('=')) == setting.first; };
    if (std::none_of(settings.begin(), settings.end(), replaced)) environment.emplace_back(text);
  }
  for (const auto& [name, value] : settings) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A descriptor below 0 is /dev/null. Only what is safe after a fork with threads around happens in the child.
Process start(Launch launch, int input, int output, int errors) {
  std::vector<std::string> environment = environment_with(launch.environment);
  const std::vector<char*> arguments = pointers_to(launch.command);
  const std::vector<char*> settings = pointers_to(environment);
  const pid_t parent = ::getpid();
  Process process{::fork(), Descriptor()};
  if (process.id < 0) throw SystemError(fmt::format("can't start {}: {}", launch.command[0], std::strerror(errno)));
  if (process.id == 0) {
    // Should this program be killed, mpirun ends its ranks, and a rank itself.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    ::dup2(input >= 0 ? input : nothing, STDIN_FILENO);
    ::dup2(output >= 0 ? output : nothing, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::execve(arguments.front(), arguments.data(), settings.data());
    ::_exit(127);
  }
  process.ended = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process.id, 0)));
  return process;
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

}  // namespace

/// The processes of a peer, and the pipes to them.
class Peer::Worker {
 public:
  Worker(const std::string& name, int ranks, const std::string& transport, const fs::path& folder) : name_(name) {
    const std::vector<Launch> launches = plan(find_library(name), ranks, transport, folder);
    Pipe input = make_pipe();
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    try {
      for (const Launch& launch : launches) {
        const bool first = processes_.empty();
        processes_.push_back(
            start(launch, first ? input.out.get() : -1, first ? output.in.get() : -1, errors.in.get()));
      }
    } catch (...) {
      end();
      throw;
    }
    input_ = std::move(input.in);
    output_ = std::move(output.out);
    errors_ = std::move(errors.out);
  }
  ~Worker() { end(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

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
      if (Clock::now() >= deadline)
        fail<TimeoutError>(fmt::format("gave no answer in {} s", std::chrono::duration<double>(limit).count()),
                           question);
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
  std::vector<Launch> plan(const Library& library, int ranks, const std::string& transport, const fs::path& folder) {
    if (ranks < 1) throw UsageError(fmt::format("a peer has 1 rank or more, not {}", ranks));
    if (transport != "shm" && transport != "tcp") {
      throw UsageError(fmt::format("a peer's transport is shm or tcp, not '{}'", transport));
    }
    if (library.name == "gloo" && transport == "shm")
      throw UsageError("gloo has no shared memory: use the transport tcp");
    const std::string worker = (folder / (library.name + "_collective")).string();
    if (::access(worker.c_str(), X_OK) != 0) refuse_missing(library, worker);
    if (library.name == "openmpi") return {with_openmpi(find_launcher(library), ranks, transport, worker)};
    if (library.name == "mpich") return {with_mpich(find_launcher(library), ranks, transport, worker)};
    store_ = std::make_unique<TemporaryFolder>();
    std::vector<Launch> launches;
    launches.reserve(ranks);
    for (int rank = 0; rank < ranks; ++rank) launches.push_back(gloo_rank(rank, ranks, store_->path(), worker));
    return launches;
  }

  // Takes in what there is to read, waiting for something to happen if there is nothing. Whether a process has ended:
  // then all that it wrote has been read.
  bool listen(Clock::time_point deadline) {
    std::vector<pollfd> events{{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
    for (const Process& process : processes_) events.push_back({process.ended.get(), POLLIN, 0});
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    ::poll(events.data(), events.size(), static_cast<int>(std::max<Milliseconds::rep>(0, left.count())));
    const auto happened = [](const pollfd& event) { return event.revents != 0; };
    const bool ended = std::any_of(events.begin() + 2, events.end(), happened);
    if (ended) settle();
    const bool more = happened(events[0]) && take(output_, heard_);
    if (happened(events[1])) take(errors_, complaints_);
    constexpr std::size_t kMostComplaints = 2000;
    if (complaints_.size() > kMostComplaints) complaints_.erase(0, complaints_.size() - kMostComplaints);
    return ended || (happened(events[0]) && !more);
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

  // Appends what can be read; false at the end.
  static bool take(const Descriptor& from, std::string& to) {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(from.get(), bytes.data(), bytes.size());
    if (count > 0) to.append(bytes.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

  // Asks, then tells, then forces all processes to end. mpirun ends its ranks when it is told to.
  void end() {
    input_.close();
    const Milliseconds patience(broken_.empty() ? 2000 : 100);
    if (wait_for_end(patience)) return;
    for (const int signal : {SIGTERM, SIGKILL}) {
      for (const Process& process : processes_) ::kill(process.id, signal);
      if (wait_for_end(Milliseconds(3000))) return;
    }
  }

  // Reaps those that have ended; whether all have.
  bool wait_for_end(Milliseconds limit) {
    const auto deadline = Clock::now() + limit;
    while (true) {
      std::erase_if(processes_, [](const Process& process) { return ::waitpid(process.id, nullptr, WNOHANG) != 0; });
      if (processes_.empty()) return true;
      if (Clock::now() >= deadline) return false;
      // What is still being said must be read, or who says it would wait for that.
      std::vector<pollfd> events{{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
      for (const Process& process : processes_) events.push_back({process.ended.get(), POLLIN, 0});
      ::poll(events.data(), events.size(), 50);
      std::string ignored;
      if (events[0].revents != 0 && !take(output_, ignored)) output_.close();
      if (events[1].revents != 0 && !take(errors_, ignored)) errors_.close();
    }
  }

  std::string name_;
  std::unique_ptr<TemporaryFolder> store_;
  std::vector<Process> processes_;
  Descriptor input_;
  Descriptor output_;
  Descriptor errors_;
  std::string heard_;       // of rank 0, not yet taken line by line
  std::string complaints_;  // the end of what all ranks wrote to stderr
  std::string broken_;      // why it is of no more use; empty if it is
};

std::vector<std::string> Peer::known() {
  std::vector<std::string> names;
  for (const Library& library : libraries()) names.push_back(library.name);
  return names;
}

fs::path Peer::workers() { return fs::read_symlink("/proc/self/exe").parent_path() / "bench" / "peers"; }

Peer::Peer(const std::string& name, int ranks, const std::string& transport, const fs::path& folder_with_workers)
    : name_(name), worker_(std::make_unique<Worker>(name, ranks, transport, folder_with_workers)) {
  const std::string line = worker_->hear("are you ready", kTimeToStart);
  if (line != fmt::format("{},ready,{}", name, ranks)) {
    throw ProtocolError(fmt::format("{} began with '{}', where it should say that it is ready", name, line));
  }
}

Peer::~Peer() = default;

Peer::Timing Peer::run(const std::string& collective, std::uint64_t bytes, int repeats, Milliseconds limit) {
  const std::string question = fmt::format("{} {} {}", collective, bytes, repeats);
  worker_->tell(question);
  const std::string answer = worker_->hear(question, limit);
  if (answer.starts_with(kRefusal)) throw UsageError(fmt::format("{}: {}", name_, answer.substr(kRefusal.size())));

  std::vector<std::string> fields;
  std::istringstream stream(answer);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  const auto number = [&](const std::string& text) {
    double value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failure == std::errc() && end == text.data() + text.size() ? value : -1;
  };
  if (fields.size() == 6 && fields[1] == collective && fields[3] == std::to_string(bytes)) {
    const Timing timing{.median_us = number(fields[4]), .min_us = number(fields[5])};
    if (timing.median_us >= 0 && timing.min_us >= 0) return timing;
  }
  worker_->fail<ProtocolError>(fmt::format("answered '{}'", answer), question);
}

}  // namespace trireme::cli
