// Ranks that see the same memory: a ring of records for each pair and direction, and messages that are read where they
// lie. inproc.h and shm.h make the memory; what goes on in it is here.
//
//   - A small message is copied into the ring, and read from there.
//   - A message that may be lent, from memory that the peers see, goes as its place, or as a list of them. The peer reads
//     them (and for an offered one writes its answer there) and says when it is done.
//   - A larger one that is offered from other memory is copied to such, and its answer back.
//   - A large message that may not be lent is copied into memory that the peers see, and that copy is lent.
//
// Nothing here makes a system call unless a peer sleeps.
#pragma once

#include "transport/arena.h"
#include "transport/bell.h"
#include "transport/byte_ring.h"
#include "transport/transport.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace trireme::transport {

/// The addresses that a rank can lend from, as seen from this rank.
struct Visible {
  std::uintptr_t base = 0;
  std::uint64_t bytes = 0;

  bool holds(std::uint64_t offset, std::uint64_t size) const { return size <= bytes && offset <= bytes - size; }
};

/// Another rank of the host, as this rank reaches it.
struct HostPeer {
  int rank = 0;
  Bell* bell = nullptr;
  int event = -1;          ///< that its bell rings, if it sleeps on one
  int process = -1;        ///< a pidfd of its process; -1: this one
  ByteRing* to = nullptr;  ///< from this rank to it
  ByteRing* from = nullptr;
  Visible visible = {};
};

/// What of this rank the others see, and keeps it there.
class HostMemory {
 public:
  virtual ~HostMemory() = default;

  virtual Arena& arena() = 0;
  virtual Visible visible() const = 0;
  virtual Bell& bell() = 0;
  virtual int event() const = 0;  ///< rung when this rank sleeps on it; -1: there is none
  virtual std::vector<HostPeer> peers() const = 0;
  /// A descriptor that the first rank of the host has given to the others; -1: this is the first, or it gave none.
  virtual int gift() const { return -1; }
};

class Host final : public Transport {
 public:
  Host(int ranks, std::unique_ptr<HostMemory> memory, Inbox& inbox);
  ~Host() override = default;

  void post(Outgoing& outgoing) override;
  bool progress() override;
  int descriptor() const override { return -1; }
  void close() override;

  /// Looks whether the peers' processes still live; those that do not are lost. Takes a system call for each.
  void check_processes();

  /// Whether peers wait for word that found no room: this rank has to make progress though it waits for nothing itself.
  bool owes() const { return owed_ > 0; }

  /// Whether peers see this memory of the rank's.
  bool shows(const std::byte* data) const {
    return visible_.holds(reinterpret_cast<std::uintptr_t>(data) - visible_.base, 1);
  }

  /// Whether a peer slept until it was sent something, since this was asked last.
  bool take_woken() { return std::exchange(woke_, false); }

  HostMemory& memory() { return *memory_; }
  bool reaches(int rank) const { return index_[rank] >= 0; }
  int peers() const { return static_cast<int>(peers_.size()); }

 private:
  struct Held {
    std::uint64_t begin = 0;
    bool released = false;
    std::uint32_t token = 0;  ///< the sender's, if it lent
    bool lent = false;
    std::vector<Piece> pieces;
    int peer = 0;  ///< index
  };

  struct Control {
    RecordKind kind;
    std::uint32_t token;
  };

  struct Peer : HostPeer {
    RingWriter writer;
    RingReader reader;
    std::deque<Control> controls;  ///< that found no room
    Outgoing* first = nullptr;     ///< that found no room
    Outgoing* last = nullptr;
    std::vector<Held*> held;  ///< in the order they came, from held_begin on
    std::size_t held_begin = 0;
    bool gone = false;
  };

  struct Lent {
    Outgoing* outgoing = nullptr;
    std::byte* staged = nullptr;
    int peer = -1;
  };

  void release(Incoming& incoming) override { finish(incoming, RecordKind::released); }
  void answer(Incoming& incoming) override { finish(incoming, RecordKind::answered); }

  bool try_send(Peer& peer, Outgoing& outgoing);
  bool send_staged(Peer& peer, Outgoing& outgoing, std::byte* staged, bool offered);
  bool send_payload(Peer& peer, Outgoing& outgoing, std::size_t bytes);
  bool send_places(Peer& peer, const Outgoing& outgoing, std::size_t bytes, std::span<const Piece> pieces, Lent lent);
  bool send_control(Peer& peer, const Control& control);
  void publish(Peer& peer, const RecordInfo& info);
  bool flush(Peer& peer);
  bool lendable(std::span<const Piece> pieces) const;
  bool take_in(Peer& peer);
  void take_message(Peer& peer, const RecordHeader& record);
  bool take_places(Peer& peer, const RecordInfo& header, const std::byte* list, Held& held);
  void take_back(Peer& peer, std::uint32_t token, bool answered);
  void finish(Incoming& incoming, RecordKind kind);
  void let_go(Peer& peer);
  void go(Peer& peer);
  void lose(Peer& peer, const std::string& why);
  void garble(Peer& peer, const std::string& why);
  Held& new_held(Peer& peer);

  std::unique_ptr<HostMemory> memory_;
  Inbox& inbox_;
  Visible visible_;
  std::vector<Peer> peers_;
  std::vector<int> index_;  ///< rank to index in peers_; -1: not on this host
  std::vector<Lent> lent_;  ///< by token
  std::vector<std::uint32_t> free_tokens_;
  int staged_offers_ = 0;
  std::vector<Piece> staged_;  ///< of the message that is being sent
  std::size_t owed_ = 0;       ///< controls that found no room
  bool woke_ = false;
  bool closed_ = false;
  std::vector<std::unique_ptr<Held>> all_held_;
  std::vector<Held*> free_held_;
};

}  // namespace trireme::transport
