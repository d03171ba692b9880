// What ranks tell each other when they start: once before, and once after they know who shares memory with whom.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

/// A rank, as it introduces itself.
struct Announcement {
  std::string name;       ///< for messages: "rank 2 (host, pid 17)"
  std::uint64_t job = 0;  ///< a random number; that of rank 0 counts
  std::string server;     ///< the address at which it reaches the rendezvous
  std::string address;    ///< its own on the way there, or as it was asked for
  bool chosen = false;    ///< somebody did ask
  std::string network;    ///< what has the same loopback
  int ways = 0;           ///< which transports it may use
  std::string tuning;     ///< of its host, as JSON, and where that is from
  std::string tuned;
  std::string forced;   ///< an algorithm for all
  int connections = 1;  ///< of each pair of ranks

  std::string to_text() const;

  /// What rank `rank` said. Throws ProtocolError that names it, if that makes no sense.
  static Announcement parse(const std::string& text, int rank);
};

/// What a rank shares with others.
struct Surroundings {
  int host = 0;            ///< the first rank whose memory it sees, or its own
  std::string machine;     ///< the kernel that it runs on
  std::vector<int> cores;  ///< that it may use

  std::string to_text() const;

  /// As above.
  static Surroundings parse(const std::string& text, int rank);
};

}  // namespace trireme
