#include "transport/inproc.h"

#include "transport/mapping.h"

#include <limits>
#include <new>
#include <vector>

namespace trireme::transport {
namespace {

struct alignas(kLine) OwnLine {
  Bell bell;
};

}  // namespace

struct Inproc::State {
  explicit State(int count) : ranks(count), bells(count), rings(Mapping::anonymous(ring_bytes(count))) {
    for (int rank = 0; rank < count; ++rank) arenas.push_back(Mapping::anonymous(arena_bytes(count)));
  }

  static std::size_t ring_bytes(int count) { return sizeof(ByteRing) * static_cast<std::size_t>(count) * count; }

  ByteRing* ring(int from, int to) const {
    return reinterpret_cast<ByteRing*>(rings.data()) + static_cast<std::ptrdiff_t>(from) * ranks + to;
  }

  int ranks;
  std::vector<OwnLine> bells;
  Mapping rings;
  /// By rank; not a rank's own, since its peers may read its last messages when it has gone.
  std::vector<Mapping> arenas;
};

namespace {

class InprocMemory final : public HostMemory {
 public:
  InprocMemory(std::shared_ptr<Inproc::State> state, int rank)
      : state_(std::move(state)),
        rank_(rank),
        arena_(state_->arenas[rank].data(), state_->arenas[rank].bytes(), -1, 0) {}

  Arena& arena() override { return arena_; }
  Visible visible() const override { return kEverything; }
  Bell& bell() override { return state_->bells[rank_].bell; }
  int event() const override { return -1; }

  std::vector<HostPeer> peers() const override {
    std::vector<HostPeer> peers;
    for (int rank = 0; rank < state_->ranks; ++rank) {
      if (rank == rank_) continue;
      peers.push_back({.rank = rank,
                       .bell = &state_->bells[rank].bell,
                       .to = state_->ring(rank_, rank),
                       .from = state_->ring(rank, rank_),
                       .visible = kEverything});
    }
    return peers;
  }

 private:
  static constexpr Visible kEverything = {.base = 0, .bytes = std::numeric_limits<std::uint64_t>::max()};

  std::shared_ptr<Inproc::State> state_;
  int rank_;
  Arena arena_;
};

}  // namespace

Inproc::Inproc(int ranks) : state_(std::make_shared<State>(ranks)) {}

std::unique_ptr<HostMemory> Inproc::memory(int rank) const { return std::make_unique<InprocMemory>(state_, rank); }

}  // namespace trireme::transport
