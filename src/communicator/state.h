// What stands behind Communicator and Handle.
#pragma once

#include "communicator/engine.h"
#include "communicator/log.h"
#include "communicator/request.h"
#include "communicator/selection.h"
#include "trireme/communicator.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

namespace trireme {

/// What all communicators of a rank share.
struct World {
  std::unique_ptr<Engine> engine;
  Tuning tuning;
  std::string forced;  ///< TRIREME_ALGORITHM
  Log log{LogLevel::off, 0};
  std::chrono::milliseconds patience{0};
  Cores cores = Cores::enough;
  std::atomic<std::int64_t> splits{
      2};                    ///< how often communicators were split, and 2: context 0 is the engine's own, 1 the world
  std::atomic<int> open{0};  ///< communicators that are not closed

  ~World() {
    if (engine) engine->close();
  }
};

/// A plan, and the operations that have run it and may do so again.
struct ReadyPlan {
  Plan plan;
  std::vector<std::shared_ptr<Handle::State>> idle;
};

struct Handle::State : Operation {
  ReadyPlan* home = nullptr;
  std::shared_ptr<Communicator::State> owner;  ///< while it is under way
};

struct Communicator::State : Group, std::enable_shared_from_this<Communicator::State> {
  State(std::shared_ptr<World> world_of, std::uint32_t context_of, int rank_of_this, std::vector<int> members_of,
        std::vector<int> hosts_of);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void check_open() const;
  void close();
  void run(Request request);
  std::shared_ptr<Handle::State> start(Request request);
  void recycle(const std::shared_ptr<Handle::State>& operation);
  std::string explain(Collective collective, std::size_t bytes);

  std::shared_ptr<World> world;

 private:
  /// What a collective was done by last, since calls often repeat.
  struct Last {
    int size_class = -1;
    int root = 0;
    Buffers buffers = Buffers::one;
    const Pick* pick = nullptr;
    ReadyPlan* ready = nullptr;
  };
  using PlanKey = std::tuple<const Algorithm*, int, int, Buffers>;  ///< with root and segments

  std::shared_ptr<Handle::State> prepare(Request& request);
  std::shared_ptr<Handle::State> prepare_message(const Request& request);
  const Pick& pick(const Request& request, std::size_t bytes);
  ReadyPlan& plan_for(const Pick& pick, int root, Buffers buffers);
  std::shared_ptr<Handle::State> take_idle(ReadyPlan& ready);
  void place_blocks(Operation& operation, const Request& request) const;
  void place_scratch(Operation& operation) const;
  void choose_segments(Operation& operation, const Request& request) const;
  Clock::duration patience(const CallOptions& options) const;

  std::mutex mutex_;
  Selector selector_;
  std::map<PlanKey, ReadyPlan> plans_;
  std::array<Last, kCollectives> last_;
  std::map<std::pair<int, bool>, ReadyPlan> messages_;  ///< by peer, and whether it is received
  std::uint32_t next_sequence_ = 0;
  std::vector<std::uint32_t> sent_;                              ///< messages so far, by rank
  std::vector<std::uint32_t> received_;                          ///< by rank
  std::map<std::pair<Collective, int>, const Algorithm*> said_;  ///< by size class: what the log has said
  std::atomic<bool> closed_{false};

  friend class trireme::Communicator;
};

enum class Contents : std::uint8_t { anything, zeros };

/// Memory that peers on the host see, if there are any. The engine must outlive it.
std::shared_ptr<std::byte> shared_memory(Engine& engine, std::size_t bytes, Contents contents);

}  // namespace trireme
