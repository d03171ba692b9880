// The flight recorder: what the ranks of a job did last, in memory that outlives them.
//
// Who starts the ranks of a host makes one board for them, an unnamed file that they inherit (TRIREME_BOARD is its
// descriptor), so that nothing is left behind. Each rank writes its operations into its own part, as they begin and
// end, and whom it holds to blame when they can't; anybody on the host can read that at any time, also of a rank that
// was stopped or killed. Who started the ranks writes there how one of them ended, so that the others can say it, and,
// when a rank asks for it, what those of other hosts did last.
//
// Ranks of a host that nobody made a board for, but that share memory, share one of theirs.
#pragma once

#include "communicator/call.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme {

/// An operation of a rank, as it was recorded.
struct Record {
  std::uint64_t number = 0;  ///< among all of its rank
  std::uint32_t context = 0;
  std::uint32_t sequence = 0;
  Call call;
  std::chrono::nanoseconds begun{0};  ///< on the steady clock of the host
  /// False: it was one of many that follow each other within microseconds, and has the time of an earlier one of them.
  bool timed = true;
  std::optional<std::chrono::nanoseconds> ended;  ///< none: it is under way

  /// "operation 12, allreduce of 1000 f32, sum by ring".
  std::string describe() const;

  /// To a clock that is that much ahead.
  void shift(std::chrono::nanoseconds offset);
};

enum class Timing : std::uint8_t {
  own,
  shared,  ///< may have that of an operation shortly before
};

class Board {
 public:
  /// The operations of a rank that are kept. Of small ones that follow each other at once, more are.
  static constexpr std::size_t kRecords = 1023;
  /// The ranks that one can hold to blame.
  static constexpr std::size_t kMostBlamed = 8;

  /// A new one. Throws SystemError if there is no memory for it.
  explicit Board(int ranks);

  /// One for some of them, who can ask its maker for what those of other hosts did last.
  static std::unique_ptr<Board> with_bell(int ranks);

  /// The one that this process inherited; none if it did not, or what it did is no board for that many ranks.
  static std::shared_ptr<Board> inherited(int ranks);

  /// The one that another process of this host has made; none if the descriptor is not that of a board for that many
  /// ranks.
  static std::shared_ptr<Board> shared(int ranks, int descriptor);

  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int ranks() const { return ranks_; }
  /// Somebody else made it, and sees how ranks end.
  bool watched() const { return watched_; }
  /// To be inherited; it is closed on exec unless that is changed.
  int descriptor() const { return descriptor_; }
  /// Likewise, of a board whose maker can be asked, who reads from it when it was; otherwise -1.
  int bell() const { return bell_; }

  // For the rank itself, from one thread at a time.
  /// It writes here from now on, and blames nobody.
  void sign(int rank);
  /// What end() takes for it.
  std::uint64_t begin(int rank, std::uint32_t context, std::uint32_t sequence, const std::uint64_t (&call)[2]);
  void end(int rank, std::uint64_t place);
  /// One that begins and ends now.
  void pass(int rank, std::uint32_t context, std::uint32_t sequence, const std::uint64_t (&call)[2], Timing timing);
  /// Whom it says that its operations can't go on for. Where it is more than kMostBlamed, it is nobody in particular.
  void blame(int rank, std::span<const int> blamed);

  /// Whether begin() and pass() write anything, on all ranks: for measuring what it costs.
  void set_recording(bool recording);

  // For all.
  /// The last operations of a rank, so many at most, oldest first.
  std::vector<Record> recent(int rank, std::size_t most) const;
  /// Likewise those that have a time of their own, from that number on.
  std::vector<Record> timed(int rank, std::uint64_t number) const;
  std::optional<Record> last(int rank) const;
  std::vector<int> blamed(int by) const;

  /// How a rank ended, as "was killed by signal 9 (Killed)"; empty: it lives, or nobody knows.
  void tell_fate(int rank, const std::string& how);
  std::string fate(int rank) const;

  /// Asks the maker what ranks of other hosts did last. False if there are none, or nobody who would answer.
  bool ask() const;
  /// That, from the maker; none: it has begun nothing.
  void tell_last(int rank, const std::optional<Record>& last);
  /// Whether what that rank did until `time`, on the steady clock, is here: it writes here, or was asked about since.
  bool knows(int rank, std::chrono::nanoseconds time) const;

 private:
  struct Layout;
  struct Part;

  /// An operation, and how many are known by it: those after it have later numbers, and no times.
  struct Found {
    Record first;
    std::uint64_t operations;
  };

  Board(int ranks, int descriptor);
  Part& part(int rank) const;
  std::vector<Found> find(int rank, std::uint64_t number) const;
  static std::uint64_t write(Part& part, std::uint64_t number, std::uint64_t which, const std::uint64_t (&call)[2],
                             std::uint64_t begun);
  double nanoseconds_per_tick() const;

  int ranks_ = 0;
  int descriptor_ = -1;
  int bell_ = -1;
  bool watched_ = false;
  std::size_t bytes_ = 0;
  Layout* layout_ = nullptr;
};

}  // namespace trireme
