#include "cli/process.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <string_view>
#include <sys/prctl.h>
#include <system_error>
#include <unistd.h>

namespace trireme::cli {
namespace {

// Should the program not be executed; nobody looks at it then.
constexpr int kNeverExecuted = 126;

// This process's environment with some variables set anew. Of those that are set twice, the last counts: programs would
// take the first.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all;
  std::set<std::string_view> names;
  const auto add = [&](std::string_view variable) {
    if (names.insert(variable.substr(0, variable.find('='))).second) all.emplace_back(variable);
  };
  for (auto variable = variables.rbegin(); variable != variables.rend(); ++variable) add(*variable);
  for (char** variable = environ; *variable != nullptr; ++variable) add(*variable);
  return all;
}

// In a child: puts a descriptor where the program expects it. False, with errno, if that can't be.
bool redirect(int from, int to) {
  if (from == kOwn) return true;
  if (from == kNull) from = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  return ::dup2(from, to) >= 0;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  all.reserve(strings.size() + 1);
  for (std::string& string : strings) all.push_back(string.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

std::string name_of_signal(int signal) {
  const std::string_view name = ::strsignal(signal);
  return fmt::format("signal {} ({})", signal, name.substr(0, name.find(" (")));  // "Stopped (tty input)"
}

void fail_with_errno(const std::string& what) {
  throw SystemError(fmt::format("{}: {}", what, std::generic_category().message(errno)));
}

Signals::Signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;  // Ignored children would vanish without a status.
  ::sigaction(SIGCHLD, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_);
  held_.emplace({SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT});
}

void Signals::restore() const {
  ::sigaction(SIGPIPE, &pipe_, nullptr);
  held_->restore();
}

FileLimit::FileLimit() {
  ::getrlimit(RLIMIT_NOFILE, &before_);
  rlimit most = before_;
  most.rlim_cur = most.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &most);
}

Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail_with_errno("no pipe");
  out = Descriptor(ends[0]);
  in = Descriptor(ends[1]);
}

Started start(const Command& command, const std::function<void()>& in_child) {
  std::vector<std::string> environment = environment_with(command.variables);
  std::vector<std::string> words = command.words;
  const std::vector<char*> envp = pointers(environment);
  const std::vector<char*> argv = pointers(words);
  Pipe trouble;  // Closed when the program is executed; otherwise says why it is not.
  const pid_t parent = ::getpid();
  Started started{.pid = ::fork()};
  if (started.pid < 0) fail_with_errno("there can't be one more process");
  if (started.pid == 0) {
    // Only what is safe in a child of a process with threads.
    if (command.own_group) ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, command.death_signal);
    if (::getppid() != parent) ::_exit(kNeverExecuted);  // It died before that was asked for.
    if (redirect(command.input, STDIN_FILENO) && redirect(command.output, STDOUT_FILENO) &&
        redirect(command.error, STDERR_FILENO)) {
      in_child();
      ::execvpe(argv[0], argv.data(), envp.data());
    }
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(trouble.in.get(), &error, sizeof(error));
    ::_exit(kNeverExecuted);
  }
  trouble.in.close();
  ssize_t count = 0;
  while ((count = ::read(trouble.out.get(), &started.error, sizeof(started.error))) < 0 && errno == EINTR) continue;
  if (count != sizeof(started.error)) started.error = 0;
  return started;
}

std::string explain_failed_start(const std::string& program, int error) {
  const bool looked_for = error == ENOENT && program.find('/') == std::string::npos;
  return fmt::format(
      "{} can't be started: {}{}", program, std::generic_category().message(error),
      looked_for ? fmt::format("; it was looked for in PATH: give ./{} for one in this folder", program) : "");
}

}  // namespace trireme::cli
