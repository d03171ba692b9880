// Other libraries, timed beside Trireme: starts their workers (bench/peers) and asks them, one question at a time, so
// that a run can interleave several. A worker that is not asked uses no processor.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trireme::cli {

/// The ranks of one library. Not for several threads at once; the ranks end with the thread that started them.
class [[nodiscard]] Peer {
 public:
  /// Of one collective, on its slowest rank.
  struct Timing {
    double median_us = 0;
    double min_us = 0;
  };

  /// The names that there are.
  static std::vector<std::string> known();

  /// The folder in which this program's build puts the workers.
  static std::filesystem::path workers();

  /// Starts the ranks on this machine and waits until they are ready. `transport` is shm or tcp. Throws UsageError if
  /// there is no such peer, if it is not installed or not built, or if it can't use that transport.
  Peer(const std::string& name, int ranks, const std::string& transport,
       const std::filesystem::path& folder_with_workers = workers());

  /// Ends all that was started.
  ~Peer();

  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Times `repeats` runs on a float32 buffer of `bytes` in all. Throws UsageError if the peer lacks the collective,
  /// PeerError if it ended, TimeoutError after `limit`; after either of these it is of no more use.
  Timing run(const std::string& collective, std::uint64_t bytes, int repeats,
             std::chrono::milliseconds limit = std::chrono::minutes(10));

 private:
  class Worker;
  std::string name_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace trireme::cli
