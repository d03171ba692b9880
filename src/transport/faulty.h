// A transport over another one that goes wrong on command: it delays, truncates, corrupts, repeats and drops what this
// rank sends, or ends as a crash would. For tests of what is above it.
//
// Messages to a peer stay in order: what comes behind a delayed one waits, too.
#pragma once

#include "transport/transport.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace trireme::transport {

struct Fault {
  enum class Kind : std::uint8_t {
    delay,     ///< by a time
    drop,      ///< it is said to be sent, but is not
    truncate,  ///< to half of its bytes
    corrupt,   ///< in its envelope
    repeat,    ///< it goes out twice
    kill,      ///< all connections of this rank end, and this one and all later messages are lost
  };
  Kind kind = Kind::delay;
  int peer = -1;                      ///< to whom; -1: anybody
  int after = 0;                      ///< so many messages to that peer, or of all
  std::chrono::microseconds time{0};  ///< of a delay
  int times = 1;                      ///< that it happens, from then on
  std::uint32_t context = 0;          ///< that a corrupted one says it has; 0: something else is wrong
};

/// What goes wrong, and when: each fault so many times, and random delays between.
struct FaultPlan {
  std::vector<Fault> faults{};
  int delay_one_in = 0;                        ///< of all messages, at random; 0: none
  std::chrono::microseconds longest_delay{0};  ///< of those
  std::uint64_t seed = 1;
};

class Faulty final : public Network, private Inbox {
 public:
  /// `inbox` hears of what the transport below brings.
  Faulty(int ranks, Inbox& inbox, FaultPlan plan);

  /// What the transport below has to be made with.
  Inbox& inbox() { return *this; }

  /// Puts one over the transport that was made with its inbox.
  static std::unique_ptr<Network> over(std::unique_ptr<Faulty> faulty, std::unique_ptr<Network> below);

  void post(Outgoing& outgoing) override;
  bool progress() override;
  bool wait(std::chrono::milliseconds most) override;
  void watch(int fd) override { below_->watch(fd); }
  int descriptor() const override { return below_->descriptor(); }
  int door() const override { return below_->door(); }
  Greeted greet() override { return below_->greet(); }
  bool has_guests() const override { return below_->has_guests(); }
  void close() override { close_within(std::chrono::seconds(2)); }
  void close_within(std::chrono::milliseconds patience) override;
  bool is_connected(int peer) const override { return below_->is_connected(peer); }
  void check_links() override { below_->check_links(); }
  void cut() override { below_->cut(); }

 protected:
  void release(Incoming& incoming) override;
  void answer(Incoming& incoming) override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Waiting {
    Outgoing* outgoing;
    std::optional<Fault> fault;
    Clock::time_point until;
  };

  // What goes out in place of a message.
  struct Forged {
    Outgoing outgoing;
    std::vector<std::byte> bytes;
    Piece piece{};
    Outgoing* original = nullptr;  ///< none: it goes out beside it
  };

  std::optional<Fault> next_fault(int peer);
  void send(Outgoing& outgoing, const std::optional<Fault>& fault);
  void forge(Outgoing& outgoing, const Fault& fault);
  bool do_what_is_due();
  void die();

  // What comes from below.
  std::size_t place(int peer, const Envelope& envelope, std::size_t bytes, std::span<Piece> pieces) override;
  void arrived(int peer, const Envelope& envelope, const Incoming& incoming) override;
  void sent(Outgoing& outgoing, bool answered) override;
  void lost(int peer, const std::string& why) override;
  void garbled(int peer, const std::string& why) override;
  void closed(int peer) override;
  void crowded(int peer) override;

  Inbox& inbox_;
  FaultPlan plan_;
  std::unique_ptr<Network> below_;
  std::mt19937_64 random_;
  int posted_ = 0;
  std::vector<int> posted_to_;                // by peer
  std::vector<std::deque<Waiting>> waiting_;  // by peer
  std::vector<Outgoing*> dropped_;            // that the inbox is still to hear of
  std::vector<std::unique_ptr<Forged>> forged_;
  bool dying_ = false;
  bool dead_ = false;
};

}  // namespace trireme::transport
