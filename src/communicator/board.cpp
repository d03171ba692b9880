#include "communicator/board.h"

#include "communicator/pace.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace trireme {
namespace {

using Nanoseconds = std::chrono::nanoseconds;
using Word = std::atomic<std::uint64_t>;

/// What begin() returns where it wrote nothing.
constexpr std::uint64_t kUnrecorded = ~std::uint64_t{0};

/// One more than are kept: the one that is being written.
constexpr std::uint64_t kEntries = Board::kRecords + 1;

/// In the last bits of the time of an operation: it has another's; it ended as soon as it had begun.
constexpr std::uint64_t kShared = 1;
constexpr std::uint64_t kAtOnce = 2;
constexpr std::uint64_t kTime = ~(kShared | kAtOnce);

constexpr std::uint64_t kMagic = 0x33647261'6f427254;  // "TrBoard3"

Nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

std::uint64_t join(std::uint32_t context, std::uint32_t sequence) { return std::uint64_t{context} << 32 | sequence; }

static_assert(Word::is_always_lock_free, "a board is shared between processes");

int duplicate(int descriptor) { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

// What lies between who made a board and this process may have closed it, and opened something else.
bool is_event(int descriptor) {
  std::error_code error;
  return descriptor > STDERR_FILENO &&
         std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), error) == "anon_inode:[eventfd]";
}

}  // namespace

std::string Record::describe() const {
  return call.kind == CallKind::collective ? fmt::format("operation {}, {}", sequence, call.describe())
                                           : fmt::format("message {}, {}", sequence, call.describe());
}

void Record::shift(Nanoseconds offset) {
  begun += offset;
  if (ended) *ended += offset;
}

// An operation. Or one that ended at once, and those of the same call that followed at once in the same communicator.
struct Entry {
  Word number;  ///< of the first
  Word which;   ///< its context and sequence
  Word call[2];
  Word begun;  ///< in ticks, with kShared and kAtOnce
  Word ended;  ///< in ticks; 0: it has not; nothing, if at once

  bool repeats(const std::uint64_t (&its_call)[2]) const {
    return call[0].load(std::memory_order_relaxed) == its_call[0] &&
           call[1].load(std::memory_order_relaxed) == its_call[1];
  }
};

// The operations of a communicator that need no time. If their call is that of the last entry, it stands for them too.
struct Stream {
  std::uint64_t until = 0;  ///< they have numbers below
  std::uint64_t which = 0;  ///< context and sequence, less the number

  bool takes(std::uint64_t number, std::uint64_t its_which) const {
    return number < until && its_which - number == which;
  }
};

// A part is one rank's, and only it writes there but for the fate; of a rank of another host, only the board's maker.
// An entry is written while there are as many before it as `written` says. So who has read one that is overwritten
// meanwhile sees that there are too many then.
struct Board::Part {
  alignas(64) Word begun;  ///< operations so far
  Word written;            ///< entries so far
  Stream stream;           ///< this and the next for the rank itself
  Pace pace;
  std::atomic<std::uint32_t> blamed_count;
  std::atomic<std::int32_t> blamed[kMostBlamed];
  std::atomic<std::uint32_t> is_signed;  ///< the rank itself writes there
  std::atomic<std::int64_t> told;        ///< when the maker did last, by the steady clock; 0: it has not
  alignas(64) std::atomic<std::uint32_t> fate_bytes;
  char fate[124];
  Entry entries[kEntries];

  Entry& next() { return entries[written.load(std::memory_order_relaxed) % kEntries]; }
  const Entry& last() const { return entries[(written.load(std::memory_order_relaxed) - 1) % kEntries]; }
};

struct Board::Layout {
  std::uint64_t magic;
  std::uint64_t ranks;
  std::uint64_t ticks;  ///< when it was made, by both clocks
  std::int64_t nanoseconds;
  std::int32_t bell;  ///< the descriptor by which the maker is asked, there and in those who inherit it; -1: none
  std::atomic<std::uint32_t> paused;
};

Board::Board(int ranks) : Board(ranks, ::memfd_create("trireme-board", MFD_CLOEXEC)) {
  new (layout_) Layout{kMagic, static_cast<std::uint64_t>(ranks), ticks() & kTime, now().count(), -1, 0};
}

std::unique_ptr<Board> Board::with_bell(int ranks) {
  auto board = std::make_unique<Board>(ranks);
  board->layout_->bell = board->bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return board;
}

Board::Board(int ranks, int descriptor)
    : ranks_(ranks), descriptor_(descriptor), bytes_(sizeof(Part) * static_cast<std::size_t>(ranks + 1)) {
  // The parts of ranks that record nothing take no memory.
  struct stat state {};
  const bool sized = descriptor >= 0 && ::fstat(descriptor, &state) == 0 &&
                     (state.st_size >= static_cast<off_t>(bytes_) ||
                      (state.st_size == 0 && ::ftruncate(descriptor, static_cast<off_t>(bytes_)) == 0));
  void* const memory = sized ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    throw SystemError(
        fmt::format("no memory for the records of {} ranks: {}", ranks, std::generic_category().message(error)));
  }
  layout_ = static_cast<Layout*>(memory);
}

Board::~Board() {
  ::munmap(layout_, bytes_);
  ::close(descriptor_);
  if (bell_ >= 0) ::close(bell_);
}

std::shared_ptr<Board> Board::inherited(int ranks) {
  const char* const text = std::getenv("TRIREME_BOARD");  // NOLINT(concurrency-mt-unsafe): nothing changes it
  if (text == nullptr) return nullptr;
  const std::string_view digits = text;
  int descriptor = -1;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), descriptor);
  if (error != std::errc{} || rest != digits.data() + digits.size() || descriptor <= STDERR_FILENO) return nullptr;
  std::shared_ptr<Board> board = shared(ranks, descriptor);
  if (!board) return nullptr;
  board->watched_ = true;
  if (is_event(board->layout_->bell)) board->bell_ = duplicate(board->layout_->bell);
  return board;
}

std::shared_ptr<Board> Board::shared(int ranks, int descriptor) {
  struct stat state {};
  const bool usable = ::fstat(descriptor, &state) == 0 && S_ISREG(state.st_mode) &&
                      state.st_size == static_cast<off_t>(sizeof(Part) * static_cast<std::size_t>(ranks + 1));
  if (!usable) return nullptr;
  // One of its own, since a program may have communicators one after the other.
  const int own = duplicate(descriptor);
  if (own < 0) return nullptr;
  std::shared_ptr<Board> board(new Board(ranks, own));
  const bool right = board->layout_->magic == kMagic && board->layout_->ranks == static_cast<std::uint64_t>(ranks);
  return right ? board : nullptr;
}

Board::Part& Board::part(int rank) const {
  return *std::launder(reinterpret_cast<Part*>(reinterpret_cast<std::byte*>(layout_) +
                                               sizeof(Part) * static_cast<std::size_t>(rank + 1)));
}

void Board::set_recording(bool recording) { layout_->paused.store(recording ? 0 : 1); }

std::uint64_t Board::begin(int rank, std::uint32_t context, std::uint32_t sequence, const std::uint64_t (&call)[2]) {
  if (layout_->paused.load(std::memory_order_relaxed) != 0) return kUnrecorded;
  Part& mine = part(rank);
  const std::uint64_t number = mine.begun.load(std::memory_order_relaxed);
  mine.stream.until = 0;
  mine.next().ended.store(0, std::memory_order_release);
  return write(mine, number, join(context, sequence), call, mine.pace.read(number) & kTime);
}

void Board::pass(int rank, std::uint32_t context, std::uint32_t sequence, const std::uint64_t (&call)[2],
                 Timing timing) {
  if (layout_->paused.load(std::memory_order_relaxed) != 0) return;
  Part& mine = part(rank);
  const std::uint64_t number = mine.begun.load(std::memory_order_relaxed);
  const std::uint64_t which = join(context, sequence);
  std::uint64_t begun = (mine.pace.last() & kTime) | kShared;
  if (timing == Timing::own || !mine.stream.takes(number, which)) {
    if (timing == Timing::own || mine.pace.untimed(sequence) == 0) begun = mine.pace.read(number) & kTime;
    mine.stream.until = number + 1 + mine.pace.untimed(sequence + 1);
    mine.stream.which = which - number;
  } else if (mine.last().repeats(call)) {
    mine.begun.store(number + 1, std::memory_order_release);
    return;
  }
  write(mine, number, which, call, begun | kAtOnce);
}

// Each is released after what says how many were written before: who reads one of these knows that too.
std::uint64_t Board::write(Part& part, std::uint64_t number, std::uint64_t which, const std::uint64_t (&call)[2],
                           std::uint64_t begun) {
  Entry& entry = part.next();
  entry.number.store(number, std::memory_order_release);
  entry.which.store(which, std::memory_order_release);
  entry.call[0].store(call[0], std::memory_order_release);
  entry.call[1].store(call[1], std::memory_order_release);
  entry.begun.store(begun, std::memory_order_release);
  const std::uint64_t place = part.written.load(std::memory_order_relaxed);
  part.written.store(place + 1, std::memory_order_release);
  part.begun.store(number + 1, std::memory_order_release);
  return place;
}

void Board::end(int rank, std::uint64_t place) {
  if (place == kUnrecorded) return;
  Part& mine = part(rank);
  if (mine.written.load(std::memory_order_relaxed) - place > kRecords) return;
  mine.entries[place % kEntries].ended.store(ticks(), std::memory_order_release);
}

// Newest first, back to the one that has the operation of that number.
std::vector<Board::Found> Board::find(int rank, std::uint64_t number) const {
  const Part& theirs = part(rank);
  // The last entry stands for all until then that were begun when this was read, which is before entries are counted.
  std::uint64_t until = theirs.begun.load(std::memory_order_acquire);
  const std::uint64_t written = theirs.written.load(std::memory_order_acquire);
  const double scale = nanoseconds_per_tick();
  const auto time_of = [&](std::uint64_t then) {
    const double since = static_cast<double>(then - layout_->ticks) * scale;
    return Nanoseconds(layout_->nanoseconds + static_cast<std::int64_t>(since));
  };
  std::vector<Found> found;
  for (std::uint64_t place = written; place > 0 && until > number; --place) {
    const Entry& entry = theirs.entries[(place - 1) % kEntries];
    const std::uint64_t first = entry.number.load(std::memory_order_acquire);
    const std::uint64_t which = entry.which.load(std::memory_order_acquire);
    const std::uint64_t call[2] = {entry.call[0].load(std::memory_order_acquire),
                                   entry.call[1].load(std::memory_order_acquire)};
    const std::uint64_t begun = entry.begun.load(std::memory_order_acquire);
    const std::uint64_t ended = entry.ended.load(std::memory_order_acquire);
    if (theirs.written.load(std::memory_order_relaxed) - (place - 1) > kRecords) break;
    if (first >= until) continue;
    const bool at_once = (begun & kAtOnce) != 0;
    Record record = {.number = first,
                     .context = static_cast<std::uint32_t>(which >> 32),
                     .sequence = static_cast<std::uint32_t>(which),
                     .call = Call::unpack(call),
                     .begun = time_of(begun & kTime),
                     .timed = (begun & kShared) == 0,
                     .ended = {}};
    if (at_once || ended != 0) record.ended = at_once ? record.begun : time_of(ended);
    found.push_back({std::move(record), at_once ? until - first : 1});
    until = first;
  }
  return found;
}

std::vector<Record> Board::recent(int rank, std::size_t most) const {
  const std::uint64_t count = part(rank).begun.load(std::memory_order_acquire);
  std::vector<Record> recent;
  for (const auto& [first, operations] : find(rank, count < most ? 0 : count - most)) {
    for (std::uint64_t after = operations; after-- > 0 && recent.size() < most;) {
      Record& record = recent.emplace_back(first);
      record.number += after;
      record.sequence += static_cast<std::uint32_t>(after);
      record.timed = first.timed && after == 0;
    }
  }
  std::reverse(recent.begin(), recent.end());
  return recent;
}

std::vector<Record> Board::timed(int rank, std::uint64_t number) const {
  std::vector<Record> timed;
  for (auto& [first, operations] : find(rank, number)) {
    if (first.timed && first.number >= number) timed.push_back(std::move(first));
  }
  std::reverse(timed.begin(), timed.end());
  return timed;
}

std::optional<Record> Board::last(int rank) const {
  const std::vector<Record> found = recent(rank, 1);
  return found.empty() ? std::nullopt : std::optional(found.back());
}

void Board::sign(int rank) {
  blame(rank, {});
  part(rank).is_signed.store(1, std::memory_order_release);
}

void Board::blame(int rank, std::span<const int> blamed) {
  Part& mine = part(rank);
  mine.blamed_count.store(0, std::memory_order_release);
  if (blamed.size() > kMostBlamed) return;
  for (std::size_t i = 0; i < blamed.size(); ++i) mine.blamed[i].store(blamed[i], std::memory_order_relaxed);
  mine.blamed_count.store(static_cast<std::uint32_t>(blamed.size()), std::memory_order_release);
}

std::vector<int> Board::blamed(int by) const {
  const Part& theirs = part(by);
  const std::size_t count = theirs.blamed_count.load(std::memory_order_acquire);
  std::vector<int> found;
  for (std::size_t i = 0; i < std::min(count, kMostBlamed); ++i) {
    found.push_back(theirs.blamed[i].load(std::memory_order_relaxed));
  }
  return found;
}

// By both clocks, from when the board was made until now.
double Board::nanoseconds_per_tick() const {
  const auto passed = static_cast<double>(now().count() - layout_->nanoseconds);
  return passed / std::max(1.0, static_cast<double>(ticks() - layout_->ticks));
}

void Board::tell_fate(int rank, const std::string& how) {
  Part& theirs = part(rank);
  if (theirs.fate_bytes.load(std::memory_order_acquire) != 0) return;
  const std::size_t bytes = std::min(how.size(), sizeof theirs.fate);
  std::memcpy(theirs.fate, how.data(), bytes);
  theirs.fate_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_release);
}

std::string Board::fate(int rank) const {
  const Part& theirs = part(rank);
  const std::size_t bytes = theirs.fate_bytes.load(std::memory_order_acquire);
  return {theirs.fate, std::min(bytes, sizeof theirs.fate)};
}

bool Board::ask() const {
  const std::uint64_t once = 1;
  return watched_ && bell_ >= 0 && ::write(bell_, &once, sizeof once) == sizeof once;
}

void Board::tell_last(int rank, const std::optional<Record>& last) {
  Part& theirs = part(rank);
  if (last) {
    std::uint64_t call[2] = {};
    last->call.pack(call);
    const double scale = nanoseconds_per_tick();
    const auto ticks_at = [&](Nanoseconds time) {
      const auto since = static_cast<double>(time.count() - layout_->nanoseconds);
      return layout_->ticks + static_cast<std::uint64_t>(std::max(0.0, since / scale));
    };
    const std::uint64_t begun = (ticks_at(last->begun) & kTime) | (last->timed ? 0 : kShared);
    const std::uint64_t ended = last->ended ? ticks_at(*last->ended) : 0;
    const std::uint64_t place = theirs.written.load(std::memory_order_relaxed);
    if (place > 0 && theirs.begun.load(std::memory_order_relaxed) == last->number + 1) {
      theirs.entries[(place - 1) % kEntries].ended.store(ended, std::memory_order_release);
    } else {
      theirs.next().ended.store(ended, std::memory_order_release);
      write(theirs, last->number, join(last->context, last->sequence), call, begun);
    }
  }
  theirs.told.store(now().count(), std::memory_order_release);
}

bool Board::knows(int rank, Nanoseconds time) const {
  const Part& theirs = part(rank);
  return theirs.is_signed.load(std::memory_order_acquire) != 0 ||
         theirs.told.load(std::memory_order_acquire) >= time.count();
}

}  // namespace trireme
