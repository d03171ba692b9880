// Other libraries, timed beside Trireme: starts their workers (bench/peers), so that a run can interleave several.
#pragma once

#include "cli/worker.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trireme::cli {

/// The ranks of one library; the probe (bench/probe.cpp) counts as one. Not for several threads at once.
class [[nodiscard]] Peer {
 public:
  /// The names that there are.
  static std::vector<std::string> known();

  /// The folder in which this program's build puts the workers.
  static std::filesystem::path workers();

  /// Starts the ranks on this machine and waits until they are ready. `transport` is shm or tcp. Throws UsageError if
  /// there is no such peer, if it is not installed or not built, or if it can't use that transport.
  Peer(const std::string& name, int ranks, const std::string& transport,
       const std::filesystem::path& folder_with_workers = workers(), const Interrupts* interrupts = nullptr);

  /// Ends all that was started.
  ~Peer();

  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const { return name_; }

  /// As Worker::run() does.
  Timing run(const std::string& collective, std::uint64_t bytes, int repeats,
             std::chrono::milliseconds limit = std::chrono::minutes(10));

 private:
  class Store;
  std::vector<Command> plan(int ranks, const std::string& transport, const std::filesystem::path& folder);

  std::string name_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace trireme::cli
