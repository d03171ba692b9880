// Command lines of `trireme run` for scripts, on this machine and on several hosts. An agent that just runs its command
// stands for ssh, so that all hosts are this machine.
#pragma once

#include "support/launched.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

// A script that each rank runs, with options before it.
inline std::vector<std::string> launch(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  std::vector<std::string> all{TRIREME_PROGRAM, "run", "-n", std::to_string(ranks)};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"/bin/sh", "-c", script});
  return all;
}

// As "$0" "$@" of a shell's script.
inline std::vector<std::string> by_shell(const std::string& script, std::vector<std::string> command) {
  command.insert(command.begin(), {"/bin/sh", "-c", script});
  return command;
}

inline Ran run_ranks(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  return run(launch(ranks, script, std::move(options)), 60s);
}

// Programs that stand for ssh, and what they need.
class Agents {
 public:
  // Runs the command, given after the host.
  std::string plain() const { return script("plain", R"(shift; exec "$@")"); }

  // Does what `special` says on host b.
  std::string with_trouble(const std::string& special) const {
    return script("trouble", fmt::format(R"(host=$1; shift; if [ $host = b ]; then {}; fi; exec "$@")", special));
  }

  // Leaves its number as a process in a file.
  std::string with_pid() const {
    return script("pid", fmt::format(R"(echo $$ > {}.$1; shift; exec "$@")", folder_ / "pid"));
  }
  void signal(const std::string& host, int number) const {
    ::kill(std::stoi("0" + read_whole(folder_ / ("pid." + host))), number);
  }
  void kill(const std::string& host) const { signal(host, SIGKILL); }

  std::string write(const std::string& name, const std::string& content) const { return folder_.write(name, content); }

  // A program by its text.
  std::string script(const std::string& name, const std::string& text) const {
    std::string path = folder_.write(name, "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

 private:
  TemporaryFolder folder_;
};

inline std::vector<std::string> launch(const std::string& hosts, const std::string& agent, const std::string& script,
                                       const std::vector<std::string>& options = {}) {
  std::vector<std::string> all{TRIREME_PROGRAM, "run", "--hosts", hosts, "--agent", agent};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"/bin/sh", "-c", script});
  return all;
}

}  // namespace trireme
