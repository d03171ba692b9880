// One call of a rank while it is under way: a plan, the memory it works on, and how far each part has come.
//
// The blocks are cut into segments, and the plan is run for each segment by itself, several at once, so that one part
// of a message is added while the next is on its way. A slot holds what is known of one segment under way; segment s
// takes slot s mod slots. All but `state` is the engine's, on the thread that drives it, from start to end.
#pragma once

#include "communicator/aside.h"
#include "communicator/call.h"
#include "communicator/plan.h"
#include "transport/transport.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace trireme {

using Clock = std::chrono::steady_clock;

/// As long as was asked for, but for times that the clock can't count to.
inline std::chrono::milliseconds at_most_years(std::chrono::milliseconds time) {
  return std::min<std::chrono::milliseconds>(time, std::chrono::years(10));
}

/// The most bytes of one message: large enough that what a message costs does not matter, small enough that several are
/// in the cache.
inline constexpr std::size_t kSegmentBytes = std::size_t{256} << 10;

struct Operation;
struct Group;

/// Where a block lies.
struct BlockPlace {
  const std::byte* input = nullptr;  ///< as the caller gave it; only read
  std::byte* work = nullptr;         ///< where it is reduced, received and, if it is wanted, ends
  std::size_t elements = 0;
  std::size_t sent = 0;  ///< elements of the input, where that has others
};

/// A message that has come, or not yet.
struct Arrival {
  bool here = false;
  bool promised = false;  ///< the transport is putting it into its place
  transport::Incoming incoming = {};
  Aside aside = {};  ///< the message, if its own room was needed for others
};

struct Send : transport::Outgoing {
  Operation* operation = nullptr;
  int slot = 0;
  int node = 0;
};

struct NodeState {
  int waits = 0;
  int missing = 0;  ///< messages that have not come
  int folded = 0;   ///< sources that have been added
  bool ended = false;
  bool settled = false;  ///< somebody else did it: the peer wrote the answer, or this rank did in a fold
};

struct Slot {
  int segment = -1;
  int nodes_left = 0;
  std::vector<NodeState> nodes;
  std::vector<Arrival> sources;
  std::vector<Send> sends;               ///< by node; those of other nodes are not used
  std::vector<transport::Piece> pieces;  ///< of the sends
};

/// A message that came before anyone waited for it.
struct Early {
  int peer = 0;
  transport::Envelope envelope;
  Arrival arrival;
  bool taken = false;  ///< nothing is left here
};

struct Operation {
  Call call;
  std::uint64_t packed[2] = {};   ///< what goes with its messages
  std::uint64_t one_end[2] = {};  ///< of a message also which end of it this is, and who is at the other
  Group* group = nullptr;
  const Plan* plan = nullptr;
  std::uint32_t context = 0;
  std::uint32_t sequence = 0;
  static constexpr int kNobody = -2;
  int from = -1;  ///< whom messages come from: a rank's number in the world, kNobody, or -1: anyone
  int divisor = 1;
  std::vector<BlockPlace> blocks;
  std::shared_ptr<std::byte> scratch;  ///< for blocks that the caller has no memory for
  std::size_t scratch_bytes = 0;
  int segments = 1;
  Clock::duration patience{0};  ///< how long it may take
  Clock::time_point started;    ///< none until the engine had to wait: most operations need no clock
  Clock::time_point deadline;
  Clock::time_point asks_at;  ///< when the others are asked what they do

  std::vector<Slot> slots;
  int slots_used = 0;
  int segments_left = 0;
  std::vector<Early> early;
  std::vector<int> there;  ///< ranks of the world that said, when asked, that they have called it too

  std::uint64_t record = 0;  ///< its place on the board
  bool recorded = false;
  bool asks_end = false;  ///< somebody may ask when it ended
  Clock::time_point ended;
  std::exception_ptr error;
  std::atomic<std::uint32_t> done{0};

  /// Whether a message is one of its own.
  bool takes(std::uint32_t its_context, std::uint32_t its_sequence, int peer) const;

  bool is_done() const { return done.load(std::memory_order_acquire) != 0; }

  /// A segment's part of a block, in elements from the block's start. Parts begin at whole cache lines of the block.
  struct Part {
    std::size_t begin, end;
  };
  Part part(std::size_t elements, int segment) const;

  std::size_t part_bytes(Run run, int segment) const;
};

}  // namespace trireme
