// Where ranks meet before they know each other: one thread that passes what each rank sends on to all.
//
// All ranks come, exchange() a few times, and say goodbye: a meeting. A rank that is lost or gives up ends its meeting
// for the others, too, and all are told of the same culprit, whichever exchange they are in. A connection that does not
// begin with the hello of a rank, or can't prove the job's secret, is dropped and counted, and disturbs nobody. A
// visitor that proves it is welcome, and not counted. An idle server uses no CPU.
//
// All members may be called from any thread.
#pragma once

#include "base/guard.h"
#include "rendezvous/environment.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::rendezvous {

enum class Meetings : std::uint8_t {
  one,   ///< the destructor sees it to its end; who comes again is left to the next server at this address
  many,  ///< ranks that come again after their goodbye meet again; the destructor ends all at once
};

/// Whether the process of a rank was ever started.
enum class Ran : std::uint8_t { no, yes };

class Server {
 public:
  /// Listens at `host` (name or number; empty: all addresses) and `port` (0: one of the system's choice). `name` is how
  /// messages call who runs it: "trireme run", "rank 0". Throws UsageError or SystemError if it can't.
  Server(const std::string& host, std::uint16_t port, int ranks, Meetings meetings = Meetings::one,
         const std::string& name = "rank 0", const Guard& guard = {});

  /// Accepts nobody any more, and waits, 5 seconds at most, until the ranks of a Meetings::one have said goodbye or
  /// hung up. If some have not come yet, it tells those that have, and so ends it.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Where it listens.
  std::uint16_t port() const;

  /// A rank is no more, or never was, which its parent knows best: `who` and `how` complete "rank 3 (who) how". Those who
  /// wait for it hear of it at once.
  void tell_ended(int rank, const std::string& who, const std::string& how, Ran ran = Ran::yes);

  /// The ranks that the first meeting failed for; none: it did not, or for nobody in particular.
  std::vector<int> culprits() const;

  /// Those that others wait for at present: they have not come, or have come and do not go on.
  std::vector<int> awaited() const;

  /// How many connections were turned away, since who made them did not prove to be a rank.
  int strangers() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

/// The server that this place has to run; null if somebody else does. It has to live until the meeting is over. It
/// listens on all addresses (a host's name may mean another one to itself than to others), or on loopback alone if that
/// is where the ranks meet.
std::unique_ptr<Server> serve(const Place& place, const Guard& guard = {});

}  // namespace trireme::rendezvous
