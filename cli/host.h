// The ranks of one host, as their launcher sees them, wherever the host is: it starts them, passes on signals, and
// hears how they end. What they write comes as whole lines in the launcher's sinks.
#pragma once

#include "cli/poll.h"
#include "communicator/board.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

using Clock = std::chrono::steady_clock;

/// What one host has to run.
struct Share {
  int first = 0;  ///< of its ranks, which have consecutive numbers
  int count = 1;
  int ranks = 1;                         ///< on all hosts together
  std::vector<std::string> command{};    ///< the program and its arguments
  std::vector<std::string> variables{};  ///< NAME=value, for all ranks
  bool prefix = true;                    ///< each line of output with its rank
  bool pin = true;                       ///< each rank to cores of its own, if there are enough
  bool report = false;                   ///< all operations of ranks are wanted, not only the last few
};

/// The process of a rank that has not ended.
struct Alive {
  int rank = 0;
  int pid = 0;
  int stopped_by = 0;  ///< the signal; 0: it runs
};

/// How a rank ended.
struct End {
  int rank = 0;
  int pid = 0;
  bool exited = true;  ///< or it was killed by a signal
  int status = 0;      ///< or the signal
  bool dumped = false;
};

/// The operations of a rank that are known in the end.
inline constexpr std::size_t kRecent = 16;

/// What a rank has recorded since the last time; `offset` is what the clock of its host is ahead of the launcher's.
struct Recorded {
  int rank = 0;
  std::vector<Record> recent{};   ///< the last of all, up to kRecent, oldest first
  std::vector<Record> records{};  ///< those that are new and timed, if all are wanted
  std::vector<int> blamed{};      ///< whom it says that they can't go on for
  std::chrono::nanoseconds offset{0};
};

/// What became of the ranks of a host that has failed.
enum class Loss : std::uint8_t { not_started, lost };

class Host {
 public:
  /// What the launcher wants to hear. A host that has failed runs nothing any more.
  struct Events {
    std::function<void(const std::vector<Alive>&)> alive;  ///< when they are started, and when one stops or goes on
    std::function<void(const std::vector<End>&)> ended;    ///< after what they had recorded
    std::function<void(const Recorded&)> recorded;         ///< as look() asked for, and when a rank ends
    std::function<void()> asked;                           ///< a rank wants to know what those elsewhere did last
    std::function<void(const std::string& why, int exit_status, Loss loss)> failed;
    std::function<void(const std::string&)> remark;  ///< something that people should know
  };

  Host() = default;
  virtual ~Host() = default;  ///< Kills what still runs.
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// Lets go of it, before it is destroyed: what has to end there can do so while others are let go of, too.
  virtual void let_go() {}

  /// Adds what it waits for.
  virtual void watch(Poll& poll) = 0;
  /// To be called after each wait, and at wake_at().
  virtual void settle() = 0;
  virtual std::optional<Clock::time_point> wake_at() const { return std::nullopt; }
  /// A child of this process has ended, was stopped or goes on.
  virtual void look_at_children() {}

  /// Whether ranks can be started.
  virtual bool ready() const = 0;
  /// It will never be ready(): events.failed has said why.
  virtual bool failed() const { return false; }
  virtual void start(const Share& share) = 0;

  /// The ranks that have not ended.
  virtual std::vector<int> running() const = 0;
  /// None runs, and no output of any will come.
  virtual bool quiet() const = 0;

  /// Asks for what ranks have recorded.
  virtual void look() = 0;
  /// How a rank, of whatever host, ended: for those here who miss it.
  virtual void tell_fate(int rank, const std::string& how) = 0;
  /// What a rank of another host did last, by this process's clock: for those here who asked.
  virtual void tell_last(int rank, const std::optional<Record>& last) = 0;

  /// To those that run. What a terminal sends goes to all of its process group by itself.
  virtual void pass_on(int signal, bool by_terminal) = 0;
  /// Asks all to end, with what they have started.
  virtual void end() = 0;
  /// Kills all, with what they have started.
  virtual void kill() = 0;
  /// When all have ended: takes what output there is, and waits for no more. settle() comes after it.
  virtual void finish() = 0;
};

}  // namespace trireme::cli
