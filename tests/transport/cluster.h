// A few ranks in one process, over a transport of some kind. A transport joins the conformance suite by one line in
// every_kind(), in kinds.cpp.
#pragma once

#include "transport/party.h"
#include "transport/transport.h"

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace trireme::test {

using Transports = std::vector<std::unique_ptr<Transport>>;

struct Kind {
  std::string name;
  /// One transport for each inbox; that of rank 0 comes first.
  std::function<Transports(std::span<transport::Inbox* const>)> make;
  /// Whether it sees that a rank is gone when its transport is destroyed without close().
  bool notices_death = false;
  /// Memory that a rank can lend; none: any memory will do.
  std::function<std::span<std::byte>(Transport&, std::size_t bytes)> memory = nullptr;
};

inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

const std::vector<Kind>& every_kind();

class Cluster {
 public:
  Cluster(const Kind& kind, int ranks) {
    std::vector<transport::Inbox*> inboxes;
    for (int rank = 0; rank < ranks; ++rank) {
      parties_.push_back(std::make_unique<Party>(rank));
      inboxes.push_back(parties_.back().get());
    }
    transports_ = kind.make(inboxes);
    for (int rank = 0; rank < ranks; ++rank) {
      Transport& transport = *transports_[rank];
      parties_[rank]->use(&transport);
      if (kind.memory == nullptr) continue;
      parties_[rank]->memory = [&kind, &transport](std::size_t bytes) { return kind.memory(transport, bytes); };
    }
  }

  int size() const { return static_cast<int>(parties_.size()); }
  Party& operator[](int rank) { return *parties_[rank]; }
  auto begin() const { return parties_.begin(); }
  auto end() const { return parties_.end(); }

  /// Ends a rank's transport as a crash would.
  void kill(int rank) { transports_[rank].reset(); }

  /// Lets all ranks make progress by turns until it is so; false if that takes too long.
  template <typename Condition>
  bool until(Condition&& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      for (const auto& transport : transports_) {
        if (transport != nullptr) transport->progress();
      }
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

  /// For some time after which nothing more should happen.
  void idle(std::chrono::milliseconds time = std::chrono::milliseconds(50)) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    until([&] { return std::chrono::steady_clock::now() > deadline; });
  }

  /// Calls work(party) for each rank on a thread of its own.
  template <typename Work>
  void on_threads(Work&& work) {
    std::vector<std::thread> threads;
    threads.reserve(parties_.size());
    for (const auto& party : parties_) threads.emplace_back([&work, &party] { work(*party); });
    for (std::thread& thread : threads) thread.join();
  }

  /// The same for one rank, on its own thread.
  template <typename Condition>
  static bool until(Party& party, Condition&& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (!party.transport().progress()) std::this_thread::yield();
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }

 private:
  static constexpr std::chrono::seconds kPatience{60};

  std::vector<std::unique_ptr<Party>> parties_;
  Transports transports_;
};

}  // namespace trireme::test
