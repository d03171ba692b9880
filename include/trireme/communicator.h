// Collectives between real processes.
//
//   auto world = trireme::init();
//   std::vector<float> gradients = ...;
//   world.allreduce(gradients, trireme::Op::average);
//
// All ranks of a communicator make the same calls in the same order; each call may come from another thread. A call
// returns when this rank's part is done; its twin that ends in _async returns a handle at once, and the buffers are
// Trireme's until that has been waited for. Ranks that call different things all get a UsageError that shows both
// calls. After any error but a wrong argument, the communicator is of no more use: later calls throw the same error.
#pragma once

#include "trireme/dtype.h"
#include "trireme/error.h"

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace trireme {

/// Elements in memory: anything contiguous, such as a vector, an array or a span, or a pointer with its dtype.
struct Buffer {
  template <std::ranges::contiguous_range Range>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>)
      Buffer(Range&& range)  // NOLINT(bugprone-forwarding-reference-overload)
      : Buffer(std::ranges::data(range), std::ranges::size(range), kDtypeOf<std::ranges::range_value_t<Range>>) {}
  Buffer(void* first, std::size_t count, Dtype type) : data(first), elements(count), dtype(type) {}

  std::size_t bytes() const { return elements * bytes_of(dtype); }

  void* data;
  std::size_t elements;
  Dtype dtype;
};

/// The same, only to be read.
struct ConstBuffer {
  template <std::ranges::contiguous_range Range>
  ConstBuffer(Range&& range)  // NOLINT(bugprone-forwarding-reference-overload)
      : ConstBuffer(std::ranges::data(range), std::ranges::size(range), kDtypeOf<std::ranges::range_value_t<Range>>) {}
  ConstBuffer(const Buffer& buffer) : ConstBuffer(buffer.data, buffer.elements, buffer.dtype) {}
  ConstBuffer(const void* first, std::size_t count, Dtype type) : data(first), elements(count), dtype(type) {}

  std::size_t bytes() const { return elements * bytes_of(dtype); }

  const void* data;
  std::size_t elements;
  Dtype dtype;
};

/// What a call may be told beyond its arguments.
struct CallOptions {
  std::string_view algorithm = {};        ///< as `trireme algorithms` lists them; empty: the fastest is chosen
  std::chrono::milliseconds deadline{0};  ///< until the call gives up with a TimeoutError; 0: the communicator's own
};

/// An operation under way.
class [[nodiscard]] Handle {
 public:
  Handle() = default;
  Handle(Handle&& other) noexcept;
  Handle& operator=(Handle&& other) noexcept;

  /// Waits for the operation, and drops what it may throw. While an exception leaves its scope it waits for a second;
  /// if the operation is not over then, it aborts, so that the exception is heard of here and on the other ranks.
  ~Handle();

  /// Returns when the operation is over. Throws what went wrong.
  void wait();

  /// Whether wait() would return at once.
  bool done() const;

  /// When the operation was over on this rank; wait() comes first.
  std::chrono::steady_clock::time_point ended() const { return ended_; }

  struct State;

 private:
  friend class Communicator;
  explicit Handle(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
  std::chrono::steady_clock::time_point ended_;
  int exceptions_ = std::uncaught_exceptions();  // under way when it was made
};

/// Memory that peers on this host read in place. It starts as zeros, and may outlive its communicator.
class Window {
 public:
  Window() = default;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// All of it, as elements.
  template <typename T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  friend class Communicator;

  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A group of ranks, as one of them. Copies are the same communicator.
class Communicator {
 public:
  int rank() const;
  int ranks() const;

  /// Whether that rank is on this host, so that the two see each other's windows.
  bool shares_memory(int peer) const;

  /// Every rank ends with the reduction of all ranks' elements.
  void allreduce(Buffer data, Op op = Op::sum, const CallOptions& options = {});
  void allreduce(ConstBuffer in, Buffer out, Op op = Op::sum, const CallOptions& options = {});
  Handle allreduce_async(Buffer data, Op op = Op::sum, const CallOptions& options = {});
  Handle allreduce_async(ConstBuffer in, Buffer out, Op op = Op::sum, const CallOptions& options = {});

  /// `in` has one share a rank, in the order of ranks; `out` ends as the reduction of this rank's share, and may be it.
  void reduce_scatter(ConstBuffer in, Buffer out, Op op = Op::sum, const CallOptions& options = {});
  Handle reduce_scatter_async(ConstBuffer in, Buffer out, Op op = Op::sum, const CallOptions& options = {});

  /// `out` ends as the `in` of all ranks, one after the other. `in` may be its own part of `out`.
  void allgather(ConstBuffer in, Buffer out, const CallOptions& options = {});
  Handle allgather_async(ConstBuffer in, Buffer out, const CallOptions& options = {});

  /// The same with another number of elements from each rank; all ranks give the same `counts`.
  void allgather(ConstBuffer in, Buffer out, std::span<const std::size_t> counts, const CallOptions& options = {});
  Handle allgather_async(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                         const CallOptions& options = {});

  /// Every rank ends with the root's elements.
  void broadcast(Buffer data, int root, const CallOptions& options = {});
  Handle broadcast_async(Buffer data, int root, const CallOptions& options = {});

  /// The root's `out` ends as the reduction; the others' is not looked at. In place: only the root's data changes.
  void reduce(ConstBuffer in, Buffer out, int root, Op op = Op::sum, const CallOptions& options = {});
  void reduce(Buffer data, int root, Op op = Op::sum, const CallOptions& options = {});
  Handle reduce_async(ConstBuffer in, Buffer out, int root, Op op = Op::sum, const CallOptions& options = {});
  Handle reduce_async(Buffer data, int root, Op op = Op::sum, const CallOptions& options = {});

  /// The root's `out` ends as the `in` of all ranks, one after the other; the others' is not looked at.
  void gather(ConstBuffer in, Buffer out, int root, const CallOptions& options = {});
  Handle gather_async(ConstBuffer in, Buffer out, int root, const CallOptions& options = {});

  /// `out` ends as this rank's share of the root's `in`, and may be it; the others' `in` is not looked at.
  void scatter(ConstBuffer in, Buffer out, int root, const CallOptions& options = {});
  Handle scatter_async(ConstBuffer in, Buffer out, int root, const CallOptions& options = {});

  /// Share d of rank s's `in` ends as share s of rank d's `out`. `in` may be `out`.
  void all_to_all(ConstBuffer in, Buffer out, const CallOptions& options = {});
  Handle all_to_all_async(ConstBuffer in, Buffer out, const CallOptions& options = {});

  /// The same with shares of different sizes: how many elements go to each rank, and come from each.
  void all_to_all(ConstBuffer in, std::span<const std::size_t> to, Buffer out, std::span<const std::size_t> from,
                  const CallOptions& options = {});
  Handle all_to_all_async(ConstBuffer in, std::span<const std::size_t> to, Buffer out,
                          std::span<const std::size_t> from, const CallOptions& options = {});

  /// Returns when all ranks have called it.
  void barrier(const CallOptions& options = {});
  Handle barrier_async(const CallOptions& options = {});

  /// From one rank to another: what is sent to a rank is received there in the same order, with the same size.
  void send(ConstBuffer data, int to, const CallOptions& options = {});
  void receive(Buffer data, int from, const CallOptions& options = {});
  Handle send_async(ConstBuffer data, int to, const CallOptions& options = {});
  Handle receive_async(Buffer data, int from, const CallOptions& options = {});

  /// Ranks with the same colour become a communicator of their own, ordered by key and then by rank. All ranks call it.
  Communicator split(int colour, int key);

  /// Memory that peers on this host read in place: collectives on it copy less.
  Window window(std::size_t bytes);

  /// What would run, and why, for so many bytes: a sentence for people.
  std::string explain(std::string_view collective, std::size_t bytes);

  /// Something is wrong with this rank, so that it can't do its part: pending and later calls of all ranks that were
  /// started together throw a UsageError that names this rank and says why. Returns when they have been told.
  void abort(const std::string& why);

  /// Ends this communicator; later calls throw UsageError. The last copy of the last communicator does it too. Throws
  /// what the last messages of the others show to be wrong, if no call has thrown it yet.
  void close();

  struct State;
  explicit Communicator(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

struct InitOptions {
  /// A program that nothing started becomes one rank alone. Without this, init() throws then.
  bool alone = false;

  /// Until init() gives up, and what calls without a deadline of their own have.
  std::chrono::milliseconds patience = std::chrono::minutes(5);

  /// Which peers share memory, and which are reached by network: "auto", "shm" (all must share this host) or "tcp".
  /// TRIREME_TRANSPORT overrules it.
  std::string transport = "auto";
};

/// Joins the ranks that were started together: by `trireme run`, torchrun, mpirun or srun, or by anything that sets
/// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Throws UsageError that says how to start the program if nothing did.
Communicator init(const InitOptions& options = {});

}  // namespace trireme
