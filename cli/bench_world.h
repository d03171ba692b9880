// Trireme's own ranks under measurement: this program again, once a rank, as `trireme bench-rank`.
#pragma once

#include "cli/worker.h"

#include <cstdint>
#include <memory>
#include <string>

namespace trireme::rendezvous {
class Server;
}

namespace trireme::cli {

/// Not for several threads at once.
class [[nodiscard]] BenchWorld {
 public:
  /// Starts the ranks on this machine, each on cores of its own if there are enough, and waits until they are ready.
  /// `transport` is shm, tcp or auto.
  BenchWorld(int ranks, const std::string& transport, const Interrupts* interrupts);

  /// Ends all that was started.
  ~BenchWorld();
  BenchWorld(const BenchWorld&) = delete;
  BenchWorld& operator=(const BenchWorld&) = delete;

  /// As Worker::run() does. An empty `algorithm` leaves the choice to selection; the timing says what that took.
  Timing run(const std::string& collective, std::uint64_t bytes, int repeats, const std::string& buffers,
             const std::string& algorithm);

 private:
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace trireme::cli
