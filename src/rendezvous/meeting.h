// The state of one meeting of all ranks, without sockets: who came, what each has sent in the present exchange, and
// what went wrong. Nothing here waits, and a meeting that has failed stays so.
#pragma once

#include "rendezvous/wire.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::rendezvous {

class Meeting {
 public:
  enum class Presence : std::uint8_t { awaited, present, gone };

  explicit Meeting(int ranks) : members_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(members_.size()); }
  Presence presence(int rank) const { return members_[rank].presence; }
  const std::string& who(int rank) const { return members_[rank].who; }
  std::uint32_t exchange() const { return exchange_; }
  const std::optional<Failure>& failure() const { return failure_; }
  /// Whom the failure comes from; none: nobody in particular.
  const std::vector<int>& culprits() const { return culprits_; }

  /// Ranks that have not come yet.
  int awaited() const { return awaited_; }
  /// All have come, and gone.
  bool over() const { return awaited_ == 0 && present_ == 0; }

  void join(int rank, std::string who);

  /// What a rank sends in the present exchange. Throws ProtocolError if it has done so before.
  void give(int rank, std::string blob);

  /// Once all have given: the frame with all that they gave, and the next exchange begins. Otherwise nothing.
  std::optional<std::string> take_all();

  /// A rank goes as it should. Those that wait for it in an exchange are out of luck.
  void leave(int rank);

  /// A rank goes without a word, or is sent away; `how` completes "rank 3 (host:1234) ...".
  void lose(int rank, const std::string& how);

  /// A rank could not wait any longer for those that are absent.
  void give_up(int rank, const Failure& failure);

  /// The meeting can't go on, for those ranks if any.
  void fail(Failure failure, std::vector<int> culprits = {});

  /// Those that the others wait for: they have not come, or not to the present exchange.
  struct Absent {
    std::vector<int> awaited{};
    std::vector<int> idle{};
  };
  Absent absent() const;
  /// Those of them that count: who has not come at all keeps the others from going on, too.
  std::vector<int> waited_for() const;

  /// "ranks 3 and 5 to 9 have not come; rank 2 (host:1234) is there, but ..."
  std::string missing() const;

  /// "rank 3 (host:1234)"
  std::string name(int rank) const;

 private:
  struct Member {
    Presence presence = Presence::awaited;
    bool given = false;
    std::string who;
    std::string blob;
  };

  void go(int rank);
  void fail_if_hopeless();

  std::vector<Member> members_;
  std::optional<Failure> failure_;
  std::vector<int> culprits_;
  std::uint32_t exchange_ = 0;
  int awaited_ = ranks();
  int present_ = 0;
  int given_ = 0;
};

/// "rank 3", "ranks 3, 5 to 9 and 11"; `ranks` go up.
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace trireme::rendezvous
