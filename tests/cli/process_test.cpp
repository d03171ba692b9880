// How children are started: what they have for input and output, what they are told, and why they are not.
#include "cli/process.h"

#include <gtest/gtest.h>

#include <sys/wait.h>

namespace trireme::cli {
namespace {

std::string read_to_end(Pipe& pipe) {
  pipe.in.close();
  std::string text;
  std::array<char, 4096> bytes{};
  for (ssize_t count = 0; (count = ::read(pipe.out.get(), bytes.data(), bytes.size())) > 0;) {
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return text;
}

int status_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Process, HasWhatTheCommandSays) {
  Pipe errors;
  bool called_here = false;
  const Started started =
      start({.words = {"sh", "-c",
                       "links=$(readlink /proc/$$/fd/0 /proc/$$/fd/1); echo $links $HOME $TRIREME_NEW >&2; exit 3"},
             .variables = {"HOME=/elsewhere", "TRIREME_NEW=1"},
             .input = kNull,
             .output = kNull,
             .error = errors.in.get()},
            [&] { called_here = true; });
  EXPECT_EQ(started.error, 0);
  EXPECT_EQ(read_to_end(errors), "/dev/null /dev/null /elsewhere 1\n");
  EXPECT_EQ(status_of(started.pid), 3);
  EXPECT_FALSE(called_here) << "what is for the child was done in its parent";
}

TEST(Process, TakesTheLastOfAVariable) {
  Pipe output;
  const Started started = start({.words = {"sh", "-c", "echo $HOME $TRIREME_NEW; env | grep -c ^TRIREME_NEW="},
                                 .variables = {"TRIREME_NEW=1", "HOME=/first", "TRIREME_NEW=2", "HOME=/last"},
                                 .output = output.in.get()},
                                [] {});
  EXPECT_EQ(read_to_end(output), "/last 2\n1\n");
  EXPECT_EQ(status_of(started.pid), 0);
}

TEST(Process, ThatCantBeStartedSaysWhy) {
  const auto try_to_start = [](const Command& command) {
    const Started started = start(command, [] {});
    status_of(started.pid);
    return explain_failed_start(command.words.front(), started.error);
  };
  EXPECT_EQ(
      try_to_start({.words = {"no-such-program"}}),
      "no-such-program can't be started: No such file or directory; it was looked for in PATH: give ./no-such-program "
      "for one in this folder");
  EXPECT_EQ(try_to_start({.words = {"/"}}), "/ can't be started: Permission denied");
  constexpr int kNotOpen = 1'000'000;
  EXPECT_EQ(try_to_start({.words = {"true"}, .output = kNotOpen}), "true can't be started: Bad file descriptor");
}

TEST(Process, IsToldWhenItsParentDies) {
  Pipe errors;
  const pid_t parent = ::fork();
  if (parent == 0) {
    start({.words = {"sh", "-c", "trap 'echo told >&2; exit' TERM; echo up >&2; while :; do sleep 0.05; done"},
           .death_signal = SIGTERM,
           .error = errors.in.get()},
          [] {});
    std::array<char, 3> up{};
    ::_exit(::read(errors.out.get(), up.data(), up.size()) == 3 ? 0 : 1);
  }
  EXPECT_EQ(status_of(parent), 0);
  EXPECT_EQ(read_to_end(errors), "told\n");
}

}  // namespace
}  // namespace trireme::cli
