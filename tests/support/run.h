// Runs a program as a user does, with its output caught, and kills it when it takes too long.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace trireme {

struct Ran {
  int status = -1;  ///< exit status; -1 if it did not exit by itself
  std::string out;
  std::string err;
};

/// In a child: goes on as that program.
[[noreturn]] inline void become(std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

inline Ran run(std::vector<std::string> arguments, std::chrono::seconds limit = std::chrono::seconds(120)) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (::pipe(out.data()) != 0 || ::pipe(err.data()) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const int end : {out[0], out[1], err[0], err[1]}) ::close(end);
    become(arguments);
  }
  ::close(out[1]);
  ::close(err[1]);
  Ran ran;
  std::array<pollfd, 2> ends{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&ran.out, &ran.err};
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (int open = 2; open > 0;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(ends.data(), ends.size(), static_cast<int>(left.count())) < 0) {
      ::kill(child, SIGKILL);
      break;
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      std::array<char, 65536> bytes{};
      const ssize_t count = ::read(ends[i].fd, bytes.data(), bytes.size());
      if (count > 0) {
        texts[i]->append(bytes.data(), static_cast<std::size_t>(count));
      } else {
        ends[i].fd = -1;
        --open;
      }
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(out[0]);
  ::close(err[0]);
  if (WIFEXITED(status)) ran.status = WEXITSTATUS(status);
  return ran;
}

/// A folder of its own that goes away with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trireme-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  bool empty() const { return std::filesystem::is_empty(path_); }

  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(*this / name) << content;
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_whole(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

/// With one space where there were several: columns are as wide as what is in them, and that differs from run to run.
inline std::string squeezed(std::string text) {
  const auto end = std::unique(text.begin(), text.end(), [](char a, char b) { return a == ' ' && b == ' '; });
  text.erase(end, text.end());
  return text;
}

}  // namespace trireme
