// What tests of the launcher share: launchers that run while the test goes on, and ranks that say who they are.
#pragma once

#include "support/run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <functional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

namespace trireme {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

inline std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

inline bool contains(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

inline std::vector<std::string> lines_with(const std::string& text, const std::string& word) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (contains(line, word)) lines.push_back(line);
  }
  return lines;
}

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline bool comes_true(const std::function<bool()>& condition) {
  for (const auto start = Clock::now(); seconds_since(start) < 60; std::this_thread::sleep_for(10ms)) {
    if (condition()) return true;
  }
  return false;
}

// Ended, and if only its parent has not noticed yet.
inline bool is_gone(pid_t pid) {
  const std::string stat = read_whole(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.compare(name_end, 3, ") Z") == 0 ||
         stat.compare(name_end, 3, ") X") == 0;
}

// Of five times, as far as is needed to know on which side of a limit their median is.
class MedianOf5 {
 public:
  explicit MedianOf5(double limit) : limit_(limit) {}

  void add(double time) { times_.insert(std::upper_bound(times_.begin(), times_.end(), time), time); }
  bool known() const { return (times_.size() >= 3 && (times_[2] < limit_ || times_[times_.size() - 3] >= limit_)); }
  double median() const { return times_[2] < limit_ ? times_[2] : times_[times_.size() - 3]; }

 private:
  double limit_;
  std::vector<double> times_;
};

// With TRIREME_LOG=info each rank says by which algorithm its first collective runs.
inline bool are_at_work(int ranks, const std::string& err) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (!contains(err, fmt::format("] trireme: rank {}: allreduce of ", rank))) return false;
  }
  return true;
}

// A launcher that runs while the test goes on. Its output goes to files.
class Started {
 public:
  explicit Started(std::vector<std::string> arguments) {
    pid_ = ::fork();
    if (pid_ == 0) {
      const int out = ::open((folder_ / "out").c_str(), O_CREAT | O_WRONLY, 0600);
      const int err = ::open((folder_ / "err").c_str(), O_CREAT | O_WRONLY, 0600);
      ::dup2(out, STDOUT_FILENO);
      ::dup2(err, STDERR_FILENO);
      become(arguments);
    }
  }
  ~Started() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  std::string out() const { return read_whole(folder_ / "out"); }
  std::string err() const { return read_whole(folder_ / "err"); }
  void signal(int number) const { ::kill(pid_, number); }
  pid_t id() const { return pid_; }

  // The exit status, 128 + signal if it was killed, or -1 if it does not end.
  int wait() {
    int status = 0;
    if (!comes_true([&] { return ::wait4(pid_, &status, WNOHANG, &usage_) == pid_; })) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Of the launcher and its ranks, after wait().
  std::chrono::microseconds processor_time() const {
    const auto time = [](const timeval& value) {
      return std::chrono::seconds(value.tv_sec) + std::chrono::microseconds(value.tv_usec);
    };
    return time(usage_.ru_utime) + time(usage_.ru_stime);
  }

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  rusage usage_{};
};

// Files named after ranks, in which each has written its number as a process.
class PidFiles {
 public:
  std::string script() const {
    return fmt::format("echo $$ > {0}/tmp.$RANK; mv {0}/tmp.$RANK {0}/$RANK;", folder_ / ".");
  }

  // Lets a rank wait until so many have written theirs.
  std::string wait_script(int ranks) const {
    return fmt::format("while [ $(ls {} | grep -c '^[0-9]') -lt {} ]; do sleep 0.05; done;", folder_ / ".", ranks);
  }

  // Those of all ranks, once they are there.
  std::vector<pid_t> wait_for(int ranks) const {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string path = folder_ / std::to_string(rank);
      EXPECT_TRUE(comes_true([&] { return std::filesystem::exists(path); })) << path;
      pids.push_back(std::stoi("0" + read_whole(path)));
    }
    return pids;
  }

 private:
  TemporaryFolder folder_;
};

inline void expect_gone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_TRUE(comes_true([&] { return is_gone(pid); })) << pid;
}

// Harm that is done once so many ranks are there ends the launcher with that status, and leaves none of them behind.
inline void expect_end_of_all(Started& started, const PidFiles& pids, int ranks, int status,
                              const std::function<void()>& harm) {
  const auto all = pids.wait_for(ranks);
  harm();
  EXPECT_EQ(started.wait(), status) << started.err();
  expect_gone(all);
}

}  // namespace trireme
