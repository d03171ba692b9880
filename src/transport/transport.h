// The transport contract: messages between two ranks.
//
// A transport moves bytes. It knows no collective, no dtype and no membership. A message is an envelope, which the
// transport carries but does not read, and pieces of memory. All calls to one transport, and all that it makes to its
// inbox, happen on one thread at a time: the one that makes progress.
//
// Messages of one sender arrive in the order they were posted, but for those that take different ways (see post()).
// An inbox takes every message that arrives, whether it is ready for it or not, so that none holds up those behind it.
#pragma once

#include "trireme/error.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trireme::transport {

/// What goes with every message, for the inbox at the other end.
struct Envelope {
  std::uint32_t context = 0;   ///< which communicator
  std::uint32_t sequence = 0;  ///< which of its operations
  std::uint32_t segment = 0;   ///< which part of that operation
  std::uint32_t index = 0;     ///< which of that part's messages from this sender
  std::uint64_t call[2] = {};  ///< what the sender was asked to do, so that the receiver can compare

  bool operator==(const Envelope&) const = default;
};

/// A stretch of memory.
struct Piece {
  std::byte* data;
  std::size_t bytes;
};

std::size_t total_bytes(std::span<const Piece> pieces);

/// How a message may leave memory that the peer can read in place. Where it can't, all three copy.
enum class Sending : std::uint8_t {
  copied,   ///< the message is done without the peer's help, as soon as there is room for it
  lent,     ///< the peer may read it in place; the message is done when it has
  offered,  ///< the same, and the peer may write its answer in the same place
};

/// A message that goes out. Its owner keeps it, and the memory that it names, until the inbox hears that it is sent.
struct Outgoing {
  int peer = 0;
  Sending sending = Sending::copied;
  bool urgent = false;  ///< it goes before what waits for room, where that can be
  Envelope envelope;
  std::span<const Piece> pieces;

  // The transport's own, while the message is with it.
  Outgoing* next = nullptr;
  std::size_t done = 0;
};

class Transport;

/// A message that came in. Its memory stays as it is until it is released or answered, which happens exactly once.
struct Incoming {
  const std::byte* data = nullptr;   ///< all of it, one piece after the other, unless it was lent or placed
  std::span<const Piece> lent = {};  ///< the sender's own pieces
  std::size_t bytes = 0;
  bool offered = false;            ///< the lent pieces may be written, and then answered
  bool placed = false;             ///< it lies where Inbox::place() said
  bool scarce = false;             ///< it takes up room that other messages need: copy and release it soon
  Transport* transport = nullptr;  ///< which brought it; none: nothing is to be released
  std::uint64_t token = 0;         ///< the transport's own

  void release();  ///< it has been read
  void answer();   ///< it has been read, and its lent pieces hold the answer
};

/// Who sends and receives. Calls come from within Transport::post() and progress().
class Inbox {
 public:
  /// A message from `peer` begins to arrive. To have it written into place as it comes, fill `pieces` with memory for
  /// exactly `bytes` bytes, and return how many there are; 0: the transport keeps it until it is released.
  virtual std::size_t place(int peer, const Envelope& envelope, std::size_t bytes, std::span<Piece> pieces) = 0;

  /// All of it is there. `incoming` is a copy to keep.
  virtual void arrived(int peer, const Envelope& envelope, const Incoming& incoming) = 0;

  /// The memory of `outgoing` may change again, and it may be posted anew. `answered`: the peer has written its answer
  /// there.
  virtual void sent(Outgoing& outgoing, bool answered) = 0;

  /// No more will come from `peer`, and none that is under way to it will get there. Said once, at once.
  virtual void lost(int peer, const std::string& why) = 0;

  /// As lost(), where what came from `peer` makes no sense.
  virtual void garbled(int peer, const std::string& why) { lost(peer, why); }

  /// No more will come from `peer`, because it closed in an orderly way.
  virtual void closed(int peer) = 0;

  /// What is held of this peer's messages takes up room that others need, though none of them was scarce when it came:
  /// they should be copied and released.
  virtual void crowded(int /*peer*/) {}

 protected:
  ~Inbox() = default;
};

class Transport {
 public:
  virtual ~Transport() = default;

  /// Takes a message. Small ones are often sent before this returns. Never waits.
  virtual void post(Outgoing& outgoing) = 0;

  /// Moves what can be moved without waiting; true if anything did.
  virtual bool progress() = 0;

  /// What becomes readable when progress() would have something to do, to sleep on; -1: nothing, the bell rings
  /// instead.
  virtual int descriptor() const = 0;

  /// Ends all connections in an orderly way: peers are not told that this rank is lost.
  virtual void close() = 0;

 protected:
  friend struct Incoming;
  virtual void release(Incoming& incoming) = 0;
  virtual void answer(Incoming& incoming) = 0;
};

/// What became of those who had come and were not known yet.
struct Greeted {
  bool open = true;  ///< more may come
  bool any = false;  ///< one was let in, heard or turned away
  /// When one of those who are there will have taken too long; never, if there are none.
  std::chrono::steady_clock::time_point again = std::chrono::steady_clock::time_point::max();
};

/// A transport to other hosts, which a rank can sleep in.
class Network : public Transport {
 public:
  /// Makes descriptor() readable when `fd`, an eventfd of somebody else's, is; progress() then empties it.
  virtual void watch(int fd) = 0;

  /// As progress(), but if there is nothing to do it waits for something, or for what watch() named, for so long.
  virtual bool wait(std::chrono::milliseconds most) = 0;

  /// What becomes readable when somebody new comes; -1: nobody can. It stays the same until close().
  virtual int door() const = 0;

  /// Hears those who have come and are not known yet, of whom progress() takes care too: for when nobody calls that.
  virtual Greeted greet() = 0;
  virtual bool has_guests() const = 0;

  /// The same as close(), for as long as `patience` at most.
  virtual void close_within(std::chrono::milliseconds patience) = 0;

  /// Whether there is a connection, or one is being made.
  virtual bool is_connected(int peer) const = 0;

  /// Looks for peers whose hosts are cut off; they are lost. To be called now and then, as it takes system calls.
  virtual void check_links() = 0;

  /// Ends all connections at once, as a crash would. Messages that came stay until they are released.
  virtual void cut() = 0;
};

inline void Incoming::release() {
  if (transport != nullptr) transport->release(*this);
  transport = nullptr;
}

inline void Incoming::answer() {
  transport->answer(*this);
  transport = nullptr;
}

}  // namespace trireme::transport
