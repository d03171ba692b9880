// MPI's collectives, as a peer to be measured: started by the mpirun of the library it was built with, see worker.h.
#include "peers/worker.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mpi.h>
#include <string_view>
#include <thread>

namespace trireme::peers {
namespace {

constexpr int kRoot = 0;

int count_of(const std::vector<float>& buffer) { return static_cast<int>(buffer.size()); }

class Mpi final : public Library {
 public:
  explicit Mpi(std::string name) : name_(std::move(name)) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::vector<std::string> ways(Collective /*collective*/) const override { return {name_}; }

  void run(Collective collective, std::size_t /*way*/, Buffers& buffers) override {
    float* const whole = buffers.whole.data();
    float* const share = buffers.share.data();
    const int all = count_of(buffers.whole);
    const int part = count_of(buffers.share);
    MPI_Comm world = MPI_COMM_WORLD;
    switch (collective) {
      case Collective::allreduce: MPI_Allreduce(MPI_IN_PLACE, whole, all, MPI_FLOAT, MPI_SUM, world); break;
      case Collective::reduce_scatter: MPI_Reduce_scatter_block(whole, share, part, MPI_FLOAT, MPI_SUM, world); break;
      case Collective::allgather: MPI_Allgather(share, part, MPI_FLOAT, whole, part, MPI_FLOAT, world); break;
      case Collective::broadcast: MPI_Bcast(whole, all, MPI_FLOAT, kRoot, world); break;
      case Collective::reduce:
        if (rank_ == kRoot) {
          MPI_Reduce(MPI_IN_PLACE, whole, all, MPI_FLOAT, MPI_SUM, kRoot, world);
        } else {
          MPI_Reduce(whole, nullptr, all, MPI_FLOAT, MPI_SUM, kRoot, world);
        }
        break;
      case Collective::gather: MPI_Gather(share, part, MPI_FLOAT, whole, part, MPI_FLOAT, kRoot, world); break;
      case Collective::scatter: MPI_Scatter(whole, part, MPI_FLOAT, share, part, MPI_FLOAT, kRoot, world); break;
      case Collective::all_to_all:
        MPI_Alltoall(whole, part, MPI_FLOAT, buffers.other.data(), part, MPI_FLOAT, world);
        break;
      case Collective::barrier: barrier(); break;
    }
  }

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  // MPI waits by spinning, so the others look now and then, and sleep in between.
  void share(Order& order) override {
    constexpr int kTag = 1;
    if (rank_ == kRoot) {
      for (int peer = 0; peer < ranks_; ++peer) {
        if (peer != kRoot) MPI_Send(&order, sizeof order, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
      }
      return;
    }
    constexpr std::chrono::milliseconds kLongest{50};
    std::chrono::milliseconds pause{1};
    for (int there = 0;;) {
      MPI_Iprobe(kRoot, kTag, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
      if (there != 0) break;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongest);
    }
    MPI_Recv(&order, sizeof order, MPI_BYTE, kRoot, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

  void greatest(std::span<double> values) override {
    const void* const mine = rank_ == kRoot ? MPI_IN_PLACE : values.data();
    MPI_Reduce(mine, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX, kRoot, MPI_COMM_WORLD);
  }

 private:
  std::string name_;
  int rank_ = 0;
  int ranks_ = 0;
};

// UCX_TLS is how an MPICH on UCX is told to leave shared memory alone. Another MPICH would not notice, and be measured
// in shared memory where TCP was meant.
void check_settings() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view version(text.data(), static_cast<std::size_t>(length));
  if (std::getenv("UCX_TLS") != nullptr && version.find("MPICH") != std::string_view::npos &&
      version.find(":ucx") == std::string_view::npos) {
    throw UsageError("this MPICH is not built on UCX, so that it can't be told to use TCP");
  }
}

}  // namespace
}  // namespace trireme::peers

// MPI's own handler ends all ranks when a call of it fails.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    trireme::peers::check_settings();
    trireme::peers::Mpi mpi(TRIREME_PEER);
    trireme::peers::serve(mpi, TRIREME_PEER);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", TRIREME_PEER, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
