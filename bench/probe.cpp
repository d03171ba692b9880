// The least that an allreduce in shared memory can cost: what windows are measured against.
//   probe RANKS BYTES... [--repeats N]    prints a line a size, "probe,RANKS,BYTES,median_us,min_us"
//   probe RANKS --serve                   reads commands and answers them as peers/worker.h says; has allreduce alone
// Every rank's float32 buffer is in one shared mapping. A run is: a barrier; each rank adds its 1/P of all buffers in
// one pass and stores the result to all; a barrier. There are no copies, no protocol and no choice.
// Sums are checked first. As with the peers (peers/worker.h), a run is timed on every rank from its own start, and is
// over when its slowest rank is.
#include "kernels/kernels.h"
#include "trireme/error.h"
#include "trireme/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sched.h>
#include <span>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace trireme {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kMostRanks = 64;
constexpr int kMostRepeats = 3000;  // that are not asked for

struct Request {
  int ranks = 0;
  std::vector<std::size_t> bytes;
  int repeats = 0;  ///< 0: as many as suit the size
  bool serve = false;
};

// Tells the processor that this is a spin loop, where it wants to know.
void relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

// A flag a rank, each on a cache line of its own: a rank raises its flag and waits for all others'.
class Barrier {
 public:
  void wait(int rank, int ranks) {
    const unsigned now = flags_[rank].raised.load(std::memory_order_relaxed) + 1;
    flags_[rank].raised.store(now, std::memory_order_release);
    for (int other = 0; other < ranks; ++other) {
      // A peer that is one barrier ahead has raised its flag twice.
      for (int spins = 0; static_cast<int>(flags_[other].raised.load(std::memory_order_acquire) - now) < 0;) {
        if (++spins < kSpins) {
          relax();
        } else {
          ::sched_yield();
        }
      }
    }
  }

 private:
  static constexpr int kSpins = 200;
  struct alignas(128) Flag {
    std::atomic<unsigned> raised;
  };
  std::array<Flag, kMostRanks> flags_;
};

class Mapping {
 public:
  Mapping(int ranks, std::size_t most_bytes, int most_repeats)
      : times_(round_up(static_cast<std::size_t>(most_repeats) * sizeof(double))),
        stride_(times_ + round_up(most_bytes) + kPage) {
    size_ = round_up(sizeof(Barrier)) + static_cast<std::size_t>(ranks) * stride_;
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw SystemError(fmt::format("no shared memory of {} bytes", size_));
  }
  ~Mapping() { ::munmap(memory_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Zeroed memory is a barrier that no one has reached yet.
  Barrier& barrier() const { return *static_cast<Barrier*>(memory_); }

  // The microseconds that the rank's runs took.
  double* times(int rank) const { return reinterpret_cast<double*>(part(rank)); }

  float* buffer(int rank) const { return reinterpret_cast<float*>(part(rank) + times_); }

 private:
  static std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  std::byte* part(int rank) const {
    return static_cast<std::byte*>(memory_) + round_up(sizeof(Barrier)) + static_cast<std::size_t>(rank) * stride_;
  }

  std::size_t times_;
  std::size_t stride_;  // a page more than it holds, so that buffers do not all start in the same cache sets
  std::size_t size_ = 0;
  void* memory_ = nullptr;
};

// Small whole numbers, so that sums are exact in whatever order they are taken.
float value(int rank, std::size_t index) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 5 + index * 3) % 61);
}

class Rank {
 public:
  Rank(int rank, const Request& request, const Mapping& mapping)
      : rank_(rank),
        ranks_(request.ranks),
        label_(request.serve ? "probe,allreduce" : "probe"),
        mapping_(mapping),
        barrier_(mapping.barrier()) {
    for (int other = 0; other < ranks_; ++other) buffers_.push_back(mapping.buffer(other));
  }

  void measure(std::size_t bytes, int repeats) {
    set_elements(bytes / sizeof(float));
    check();
    for (int i = 0; i < std::max(3, repeats / 10); ++i) allreduce();
    for (int i = 0; i < repeats; ++i) {
      barrier_.wait(rank_, ranks_);
      const auto begin = std::chrono::steady_clock::now();
      allreduce();
      const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
      mapping_.times(rank_)[i] = took.count();
    }
    barrier_.wait(rank_, ranks_);
    if (rank_ == 0) print(bytes, repeats);
    barrier_.wait(rank_, ranks_);
  }

 private:
  void print(std::size_t bytes, int repeats) const {
    std::vector<double> slowest(repeats);
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int i = 0; i < repeats; ++i) slowest[i] = std::max(slowest[i], mapping_.times(rank)[i]);
    }
    std::sort(slowest.begin(), slowest.end());
    fmt::print("{},{},{},{:.2f},{:.2f}\n", label_, ranks_, bytes, slowest[slowest.size() / 2], slowest.front());
    std::fflush(stdout);
  }

  void set_elements(std::size_t elements) {
    const auto end_of = [&](int ranks) { return elements * static_cast<std::size_t>(ranks) / ranks_; };
    elements_ = elements;
    share_ = end_of(rank_ + 1) - end_of(rank_);
    to_.clear();
    for (float* buffer : buffers_) to_.push_back(reinterpret_cast<std::byte*>(buffer + end_of(rank_)));
    from_.assign(to_.begin(), to_.end());
  }

  void allreduce() {
    barrier_.wait(rank_, ranks_);
    kernels::fold(Op::sum, Dtype::f32, to_, from_, share_);
    barrier_.wait(rank_, ranks_);
  }

  // Leaves zeros, whose sums stay finite however often they are taken.
  void check() {
    float* const mine = buffers_[rank_];
    for (std::size_t i = 0; i < elements_; ++i) mine[i] = value(rank_, i);
    allreduce();
    for (std::size_t i = 0; i < elements_; ++i) {
      float sum = 0;
      for (int other = 0; other < ranks_; ++other) sum += value(other, i);
      if (mine[i] != sum) {
        throw Error(fmt::format("rank {} has {} at {}, where the sum is {}", rank_, mine[i], i, sum));
      }
    }
    barrier_.wait(rank_, ranks_);
    std::fill_n(mine, elements_, 0.0F);
  }

  int rank_;
  int ranks_;
  std::string label_;
  const Mapping& mapping_;
  Barrier& barrier_;
  std::vector<float*> buffers_;
  std::size_t elements_ = 0;
  std::size_t share_ = 0;               // elements that this rank adds,
  std::vector<const std::byte*> from_;  // from all buffers
  std::vector<std::byte*> to_;          // to all buffers
};

int repeats_of(const Request& request, std::size_t bytes) {
  if (request.repeats > 0) return request.repeats;
  if (bytes <= 64U << 10U) return kMostRepeats;
  return bytes <= 1U << 20U ? 500 : 40;
}

// To a core of its own where there are cores enough, as mpirun does: two ranks on one core would only take turns.
void pin(int rank, int ranks) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || ranks > CPU_COUNT(&allowed)) return;
  for (int core = 0, number = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || number++ != rank) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    ::sched_setaffinity(0, sizeof own, &own);
  }
}

int run_rank(int rank, const Request& request, const Mapping& mapping) {
  pin(rank, request.ranks);
  try {
    Rank self(rank, request, mapping);
    for (const std::size_t bytes : request.bytes) {
      self.measure(bytes, repeats_of(request, bytes));
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "probe: {}\n", error.what());
    return 1;
  }
}

// A rank that fails leaves the others waiting at a barrier, so they are ended too.
int run_ranks(const Request& request) {
  const std::size_t most_bytes = *std::max_element(request.bytes.begin(), request.bytes.end());
  const Mapping mapping(request.ranks, most_bytes, std::max(request.repeats, kMostRepeats));
  const pid_t parent = ::getpid();
  std::vector<pid_t> children;
  int status = 0;
  for (int rank = 0; rank < request.ranks && status == 0; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::_exit(::getppid() == parent ? run_rank(rank, request, mapping) : 1);
    }
    if (child < 0) {
      fmt::print(stderr, "probe: no process for rank {}\n", rank);
      status = 1;
    } else {
      children.push_back(child);
    }
  }
  while (!children.empty()) {
    if (status != 0) {
      for (const pid_t child : children) ::kill(child, SIGKILL);
    }
    int ended = 0;
    const pid_t child = ::wait(&ended);
    if (ended != 0) status = 1;
    std::erase(children, child);
  }
  return status;
}

int parse_count(const std::string& text, int most, const std::string& what) {
  const std::uint64_t count = text.find_first_not_of("0123456789") == std::string::npos ? parse_bytes(text) : 0;
  if (count < 1 || count > static_cast<std::uint64_t>(most)) {
    throw UsageError(fmt::format("{} must be 1 to {}, not '{}'", what, most, text));
  }
  return static_cast<int>(count);
}

std::size_t parse_size(const std::string& text) {
  const std::uint64_t bytes = parse_bytes(text);
  if (bytes % sizeof(float) != 0) throw UsageError(fmt::format("{} is not whole float32s", text));
  return bytes;
}

Request parse(std::span<char* const> arguments) {
  Request request;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string text = arguments[i];
    if (text == "--repeats") {
      if (++i == arguments.size()) throw UsageError("--repeats needs a number");
      request.repeats = parse_count(arguments[i], 1'000'000, "--repeats");
    } else if (text == "--serve") {
      request.serve = true;
    } else if (request.ranks == 0) {
      request.ranks = parse_count(text, kMostRanks, "RANKS");
    } else {
      request.bytes.push_back(parse_size(text));
    }
  }
  if (request.ranks == 0 || request.bytes.empty() != request.serve) {
    throw UsageError("usage: probe RANKS BYTES... [--repeats N] | probe RANKS --serve");
  }
  return request;
}

Request parse_command(const std::string& line, int ranks) {
  std::istringstream words(line);
  std::string collective;
  std::string bytes;
  std::string repeats;
  std::string rest;
  if (!(words >> collective >> bytes >> repeats) || words >> rest) {
    throw UsageError(fmt::format("'{}' is not COLLECTIVE BYTES REPEATS", line));
  }
  if (collective != "allreduce") throw UsageError(fmt::format("it has no {}", collective));
  return {.ranks = ranks,
          .bytes = {parse_size(bytes)},
          .repeats = parse_count(repeats, 1'000'000, "REPEATS"),
          .serve = true};
}

// Ranks are started for each command anew, so that nothing runs in between.
int serve(int ranks) {
  fmt::print("probe,ready,{}\n", ranks);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    try {
      if (const int status = run_ranks(parse_command(line, ranks)); status != 0) return status;
    } catch (const Error& error) {
      fmt::print("error,{}\n", error.what());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  try {
    const trireme::Request request = trireme::parse(std::span(argv, argc).subspan(1));
    return request.serve ? trireme::serve(request.ranks) : trireme::run_ranks(request);
  } catch (const trireme::UsageError& error) {
    fmt::print(stderr, "probe: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "probe: {}\n", error.what());
    return 1;
  }
}
