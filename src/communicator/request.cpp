#include "communicator/request.h"

#include "transport/wire.h"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <string_view>

namespace trireme {
namespace {

const std::byte* bytes_at(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_at(void* data) { return static_cast<std::byte*>(data); }

void check_buffer(const ConstBuffer& buffer, std::string_view what) {
  if (static_cast<int>(buffer.dtype) >= kDtypes) throw UsageError(fmt::format("{} has no dtype that there is", what));
  if (buffer.data == nullptr && buffer.elements > 0) {
    throw UsageError(fmt::format("{} is a null pointer to {} elements", what, buffer.elements));
  }
  if (buffer.elements > std::numeric_limits<std::ptrdiff_t>::max() / bytes_of(buffer.dtype)) {
    throw UsageError(fmt::format("{} has {} elements, more than there can be", what, buffer.elements));
  }
}

void check_op(Dtype dtype, Op op) {
  if (static_cast<int>(dtype) >= kDtypes) throw UsageError("there is no such dtype");
  if (static_cast<int>(op) >= kOps) throw UsageError("there is no such operation");
  if (!supports(dtype, op)) {
    throw UsageError(fmt::format("{} is for integers; the elements are {}", to_string(op), to_string(dtype)));
  }
}

void check_same_dtype(const ConstBuffer& in, const Buffer& out) {
  if (in.dtype != out.dtype) {
    throw UsageError(fmt::format("in has elements of {}, out of {}", to_string(in.dtype), to_string(out.dtype)));
  }
}

void check_elements(std::string_view what, std::size_t elements, std::size_t expected, std::string_view why) {
  if (elements != expected) {
    throw UsageError(fmt::format("{} has {} elements; it must have {}, {}", what, elements, expected, why));
  }
}

/// `in` may lie at the one place in `out`, or `out` at the one place in `in`, that the collective allows.
void check_overlap(const ConstBuffer& in, const Buffer& out, const void* allowed_in, const void* allowed_out) {
  const std::byte* in_first = bytes_at(in.data);
  const std::byte* out_first = bytes_at(static_cast<const void*>(out.data));
  const std::less<> before;
  const bool apart = !before(in_first, out_first + out.bytes()) || !before(out_first, in_first + in.bytes());
  if (apart || in.bytes() == 0 || out.bytes() == 0 || (in.data == allowed_in && out.data == allowed_out)) return;
  throw UsageError("in and out overlap, other than this collective does in place");
}

Call collective_call(Collective collective, Dtype dtype, std::size_t elements, int root = 0) {
  return {.collective = collective, .dtype = dtype, .root = static_cast<std::uint64_t>(root), .elements = elements};
}

Call reducing_call(Collective collective, Dtype dtype, Op op, std::size_t elements, int root = 0) {
  check_op(dtype, op);
  Call call = collective_call(collective, dtype, elements, root);
  call.op = op;
  call.reduces = true;
  return call;
}

// Sums and products that are too large are larger than any buffer.
constexpr std::size_t kTooMany = std::numeric_limits<std::size_t>::max();

std::size_t sum(std::span<const std::size_t> counts) {
  std::size_t total = 0;
  for (const std::size_t count : counts) total = count > kTooMany - total ? kTooMany : total + count;
  return total;
}

std::size_t times(std::size_t elements, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  return elements > kTooMany / count ? kTooMany : elements * count;
}

/// So that ranks that give different counts find out. Never 0.
std::uint16_t shape_of(std::span<const std::size_t> counts) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::size_t count : counts) hash = (hash ^ count) * 0x100000001b3U;
  return static_cast<std::uint16_t>((hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) | 1);
}

/// For allgather and for the root of gather: the own share may be in its place already.
void find_in_place(Request& request, const ConstBuffer& in, const Buffer& out, std::size_t offset) {
  const std::byte* place = bytes_at(out.data) + offset * bytes_of(out.dtype);
  check_overlap(in, out, place, out.data);
  if (in.elements > 0 && bytes_at(in.data) == place) request.input = request.output;
}

void check_message(const ConstBuffer& data, int peer, int ranks, const CallOptions& options) {
  check_buffer(data, "data");
  check_rank("rank", peer, ranks);
  if (!options.algorithm.empty()) {
    throw UsageError(fmt::format("a message has no algorithm: leave out '{}'", options.algorithm));
  }
}

Call message_call(CallKind kind, const ConstBuffer& data, int peer) {
  return {.kind = kind, .dtype = data.dtype, .root = static_cast<std::uint64_t>(peer), .elements = data.elements};
}

}  // namespace

void check_rank(std::string_view what, int rank, int ranks) {
  if (rank < 0 || rank >= ranks) throw UsageError(fmt::format("{} {} is not one of {} ranks", what, rank, ranks));
}

Request allreduce_request(const ConstBuffer& in, const Buffer& out, Op op, const CallOptions& options) {
  check_buffer(in, "in");
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("out", out.elements, in.elements, "as in has");
  check_overlap(in, out, out.data, out.data);
  return {.call = reducing_call(Collective::allreduce, in.dtype, op, in.elements),
          .input = bytes_at(in.data),
          .output = bytes_at(out.data),
          .options = options};
}

Request reduce_scatter_request(const ConstBuffer& in, const Buffer& out, Op op, int rank, int ranks,
                               const CallOptions& options) {
  check_buffer(in, "in");
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("in", in.elements, times(out.elements, ranks), "a share for each rank");
  check_overlap(in, out, in.data, bytes_at(in.data) + out.bytes() * static_cast<std::size_t>(rank));
  return {.call = reducing_call(Collective::reduce_scatter, in.dtype, op, in.elements),
          .input = bytes_at(in.data),
          .output = bytes_at(out.data),
          .share = out.elements,
          .shares = true,
          .options = options};
}

Request allgather_request(const ConstBuffer& in, const Buffer& out, int rank, int ranks, const CallOptions& options) {
  check_buffer(in, "in");
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("out", out.elements, times(in.elements, ranks), "a share for each rank");
  Request request{.call = collective_call(Collective::allgather, in.dtype, out.elements),
                  .input = bytes_at(in.data),
                  .output = bytes_at(out.data),
                  .share = in.elements,
                  .shares = true,
                  .options = options};
  find_in_place(request, in, out, in.elements * static_cast<std::size_t>(rank));
  return request;
}

Request uneven_allgather_request(const ConstBuffer& in, const Buffer& out, std::span<const std::size_t> counts,
                                 int rank, int ranks, const CallOptions& options) {
  check_buffer(in, "in");
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("counts", counts.size(), static_cast<std::size_t>(ranks), "one for each rank");
  check_elements("in", in.elements, counts[rank], "as counts says for this rank");
  check_elements("out", out.elements, sum(counts), "as counts says for all");
  Request request{.call = collective_call(Collective::allgather, in.dtype, out.elements),
                  .input = bytes_at(in.data),
                  .output = bytes_at(out.data),
                  .counts = counts,
                  .shares = true,
                  .options = options};
  request.call.shape = shape_of(counts);
  find_in_place(request, in, out, sum(counts.first(rank)));
  return request;
}

Request broadcast_request(const Buffer& data, int root, int ranks, const CallOptions& options) {
  check_buffer(data, "data");
  check_rank("root", root, ranks);
  return {.call = collective_call(Collective::broadcast, data.dtype, data.elements, root),
          .input = bytes_at(data.data),
          .output = bytes_at(data.data),
          .root = root,
          .options = options};
}

Request reduce_request(const ConstBuffer& in, const Buffer& out, int root, Op op, int rank, int ranks,
                       const CallOptions& options) {
  check_buffer(in, "in");
  check_rank("root", root, ranks);
  if (rank == root) {
    check_buffer(out, "out");
    check_same_dtype(in, out);
    check_elements("out", out.elements, in.elements, "as in has");
    check_overlap(in, out, out.data, out.data);
  }
  return {.call = reducing_call(Collective::reduce, in.dtype, op, in.elements, root),
          .input = bytes_at(in.data),
          .output = rank == root ? bytes_at(out.data) : nullptr,
          .root = root,
          .options = options};
}

Request gather_request(const ConstBuffer& in, const Buffer& out, int root, int rank, int ranks,
                       const CallOptions& options) {
  check_buffer(in, "in");
  check_rank("root", root, ranks);
  const std::size_t all = times(in.elements, ranks);
  Request request{.call = collective_call(Collective::gather, in.dtype, all, root),
                  .input = bytes_at(in.data),
                  .share = in.elements,
                  .shares = true,
                  .root = root,
                  .options = options};
  if (rank != root) return request;
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("out", out.elements, all, "a share for each rank");
  request.output = bytes_at(out.data);
  find_in_place(request, in, out, in.elements * static_cast<std::size_t>(rank));
  return request;
}

Request scatter_request(const ConstBuffer& in, const Buffer& out, int root, int rank, int ranks,
                        const CallOptions& options) {
  check_buffer(out, "out");
  check_rank("root", root, ranks);
  const std::size_t all = times(out.elements, ranks);
  if (rank == root) {
    check_buffer(in, "in");
    check_same_dtype(in, out);
    check_elements("in", in.elements, all, "a share for each rank");
    check_overlap(in, out, in.data, bytes_at(in.data) + out.bytes() * static_cast<std::size_t>(rank));
  }
  return {.call = collective_call(Collective::scatter, out.dtype, all, root),
          .input = rank == root ? bytes_at(in.data) : nullptr,
          .output = bytes_at(out.data),
          .share = out.elements,
          .shares = true,
          .root = root,
          .options = options};
}

Request all_to_all_request(const ConstBuffer& in, const Buffer& out, int ranks, const CallOptions& options) {
  check_buffer(in, "in");
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("out", out.elements, in.elements, "as in has");
  const std::size_t share = in.elements / static_cast<std::size_t>(ranks);
  check_elements("in", in.elements, share * static_cast<std::size_t>(ranks), "a multiple of the number of ranks");
  check_overlap(in, out, out.data, out.data);
  return {.call = collective_call(Collective::all_to_all, in.dtype, in.elements),
          .input = bytes_at(in.data),
          .output = bytes_at(out.data),
          .share = share,
          .shares = true,
          .options = options};
}

Request uneven_all_to_all_request(const ConstBuffer& in, std::span<const std::size_t> to, const Buffer& out,
                                  std::span<const std::size_t> from, int rank, int ranks, const CallOptions& options) {
  check_buffer(in, "in");
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("to", to.size(), static_cast<std::size_t>(ranks), "one for each rank");
  check_elements("from", from.size(), static_cast<std::size_t>(ranks), "one for each rank");
  check_elements("in", in.elements, sum(to), "as `to` says for all");
  check_elements("out", out.elements, sum(from), "as `from` says for all");
  check_elements("from", from[rank], to[rank], "for this rank itself, as `to` says");
  for (const std::span<const std::size_t> counts : {to, from}) {
    for (const std::size_t count : counts) {
      if (count > transport::wire::kMostBytes / bytes_of(in.dtype)) {
        throw UsageError(
            fmt::format("a share of {} elements of {} is too large for an uneven all_to_all, where each is one "
                        "message of at most {} bytes: call it for parts of the shares",
                        count, to_string(in.dtype), transport::wire::kMostBytes));
      }
    }
  }
  check_overlap(in, out, nullptr, nullptr);
  // Nobody knows all sizes, so they are no part of what the ranks agree on.
  Call call = collective_call(Collective::all_to_all, in.dtype, 0);
  call.shape = 1;
  return {.call = call,
          .input = bytes_at(in.data),
          .output = bytes_at(out.data),
          .counts = from,
          .inputs = to,
          .shares = true,
          .options = options};
}

Request barrier_request(const CallOptions& options) {
  return {.call = collective_call(Collective::barrier, Dtype::u8, 0), .options = options};
}

Request send_request(const ConstBuffer& data, int to, int rank, int ranks, const CallOptions& options) {
  check_message(data, to, ranks, options);
  if (to == rank) throw UsageError("a rank can't send to itself");
  return {.call = message_call(CallKind::send, data, to),
          .input = static_cast<const std::byte*>(data.data),
          .options = options};
}

Request receive_request(const Buffer& data, int from, int rank, int ranks, const CallOptions& options) {
  check_message(data, from, ranks, options);
  if (from == rank) throw UsageError("a rank can't receive from itself");
  return {.call = message_call(CallKind::receive, data, from),
          .output = static_cast<std::byte*>(data.data),
          .options = options};
}

}  // namespace trireme
