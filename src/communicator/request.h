// What a public call asks for: its arguments, checked, and which memory is to be worked on.
#pragma once

#include "communicator/call.h"
#include "trireme/communicator.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

/// One call, with all that matters of its arguments.
struct Request {
  Call call;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t share = 0;                     ///< elements of a rank's share, if all have as many
  std::span<const std::size_t> counts = {};  ///< elements of each rank's share; empty: all as `share`
  std::span<const std::size_t> inputs = {};  ///< of an uneven all_to_all: shares of the input
  bool shares = false;                       ///< the blocks belong to ranks
  int root = 0;
  CallOptions options = {};
};

/// Throws UsageError that calls it `what`, if there is no such rank.
void check_rank(std::string_view what, int rank, int ranks);

// One for each collective, as called by this rank of so many. All throw UsageError that says what is wrong.
Request allreduce_request(const ConstBuffer& in, const Buffer& out, Op op, const CallOptions& options);
Request reduce_scatter_request(const ConstBuffer& in, const Buffer& out, Op op, int rank, int ranks,
                               const CallOptions& options);
Request allgather_request(const ConstBuffer& in, const Buffer& out, int rank, int ranks, const CallOptions& options);
Request uneven_allgather_request(const ConstBuffer& in, const Buffer& out, std::span<const std::size_t> counts,
                                 int rank, int ranks, const CallOptions& options);
Request broadcast_request(const Buffer& data, int root, int ranks, const CallOptions& options);
Request reduce_request(const ConstBuffer& in, const Buffer& out, int root, Op op, int rank, int ranks,
                       const CallOptions& options);
Request gather_request(const ConstBuffer& in, const Buffer& out, int root, int rank, int ranks,
                       const CallOptions& options);
Request scatter_request(const ConstBuffer& in, const Buffer& out, int root, int rank, int ranks,
                        const CallOptions& options);
Request all_to_all_request(const ConstBuffer& in, const Buffer& out, int ranks, const CallOptions& options);
Request uneven_all_to_all_request(const ConstBuffer& in, std::span<const std::size_t> to, const Buffer& out,
                                  std::span<const std::size_t> from, int rank, int ranks, const CallOptions& options);
Request barrier_request(const CallOptions& options);

// The same for a message to another rank, or from it.
Request send_request(const ConstBuffer& data, int to, int rank, int ranks, const CallOptions& options);
Request receive_request(const Buffer& data, int from, int rank, int ranks, const CallOptions& options);

}  // namespace trireme
