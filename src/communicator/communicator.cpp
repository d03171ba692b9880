// The public calls: they check their arguments, and say what is to be done with which memory.
#include "trireme/communicator.h"

#include "communicator/state.h"
#include "transport/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <functional>
#include <numeric>
#include <thread>

namespace trireme {
namespace {

const std::byte* bytes_at(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_at(void* data) { return static_cast<std::byte*>(data); }

void check_buffer(const ConstBuffer& buffer, std::string_view what) {
  if (static_cast<int>(buffer.dtype) >= kDtypes) throw UsageError(fmt::format("{} has no dtype that there is", what));
  if (buffer.data == nullptr && buffer.elements > 0) {
    throw UsageError(fmt::format("{} is a null pointer to {} elements", what, buffer.elements));
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

void check_rank(std::string_view what, int rank, int ranks) {
  if (rank < 0 || rank >= ranks) throw UsageError(fmt::format("{} {} is not one of {} ranks", what, rank, ranks));
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

std::size_t sum(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// So that ranks that give different counts find out. Never 0.
std::uint16_t shape_of(std::span<const std::size_t> counts) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::size_t count : counts) hash = (hash ^ count) * 0x100000001b3U;
  return static_cast<std::uint16_t>((hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) | 1);
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
  check_elements("in", in.elements, out.elements * static_cast<std::size_t>(ranks), "a share for each rank");
  check_overlap(in, out, in.data, bytes_at(in.data) + out.bytes() * static_cast<std::size_t>(rank));
  return {.call = reducing_call(Collective::reduce_scatter, in.dtype, op, in.elements),
          .input = bytes_at(in.data),
          .output = bytes_at(out.data),
          .share = out.elements,
          .shares = true,
          .options = options};
}

/// For allgather and for the root of gather: the own share may be in its place already.
void find_in_place(Request& request, const ConstBuffer& in, const Buffer& out, std::size_t offset) {
  const std::byte* place = bytes_at(out.data) + offset * bytes_of(out.dtype);
  check_overlap(in, out, place, out.data);
  if (in.elements > 0 && bytes_at(in.data) == place) request.input = request.output;
}

Request allgather_request(const ConstBuffer& in, const Buffer& out, int rank, int ranks, const CallOptions& options) {
  check_buffer(in, "in");
  check_buffer(out, "out");
  check_same_dtype(in, out);
  check_elements("out", out.elements, in.elements * static_cast<std::size_t>(ranks), "a share for each rank");
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
  const std::size_t all = in.elements * static_cast<std::size_t>(ranks);
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
  const std::size_t all = out.elements * static_cast<std::size_t>(ranks);
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
      if (count * bytes_of(in.dtype) > transport::wire::kMostBytes) {
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

Call message_call(Dtype dtype, std::size_t elements) {
  return {.kind = CallKind::point_to_point, .dtype = dtype, .elements = elements};
}

}  // namespace

Handle::Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
Handle::Handle(Handle&& other) noexcept : state_(std::move(other.state_)), ended_(other.ended_) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(ended_, other.ended_);
  return *this;
}

Handle::~Handle() {
  try {
    if (state_ && std::uncaught_exceptions() > exceptions_) {
      constexpr std::chrono::seconds kPatience{1};
      const auto until = std::chrono::steady_clock::now() + kPatience;
      while (!state_->is_done() && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(kPatience / 1000);
      if (!state_->is_done()) {
        state_->owner->world->engine->abort(
            fmt::format("an exception left the scope of {}, which was under way", state_->call.describe()));
      }
    }
    wait();
  } catch (const Error&) {
    // Who wants to know calls wait().
  }
}

void Handle::wait() {
  if (!state_) return;
  // Not the operation's any more, whatever becomes of it: the engine may keep that as long as it lives itself.
  const std::shared_ptr<Communicator::State> owner = std::move(state_->owner);
  const std::shared_ptr<State> state = std::move(state_);
  owner->world->engine->wait(*state);
  ended_ = state->ended;
  owner->recycle(state);
}

bool Handle::done() const { return !state_ || state_->is_done(); }

Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

int Communicator::rank() const { return state_->rank; }
int Communicator::ranks() const { return state_->ranks(); }

bool Communicator::shares_memory(int peer) const {
  check_rank("rank", peer, ranks());
  return state_->hosts[peer] == state_->hosts[rank()];
}

void Communicator::allreduce(Buffer data, Op op, const CallOptions& options) { allreduce(data, data, op, options); }

void Communicator::allreduce(ConstBuffer in, Buffer out, Op op, const CallOptions& options) {
  state_->run(allreduce_request(in, out, op, options));
}

Handle Communicator::allreduce_async(Buffer data, Op op, const CallOptions& options) {
  return allreduce_async(data, data, op, options);
}

Handle Communicator::allreduce_async(ConstBuffer in, Buffer out, Op op, const CallOptions& options) {
  return Handle(state_->start(allreduce_request(in, out, op, options)));
}

void Communicator::reduce_scatter(ConstBuffer in, Buffer out, Op op, const CallOptions& options) {
  state_->run(reduce_scatter_request(in, out, op, rank(), ranks(), options));
}

Handle Communicator::reduce_scatter_async(ConstBuffer in, Buffer out, Op op, const CallOptions& options) {
  return Handle(state_->start(reduce_scatter_request(in, out, op, rank(), ranks(), options)));
}

void Communicator::allgather(ConstBuffer in, Buffer out, const CallOptions& options) {
  state_->run(allgather_request(in, out, rank(), ranks(), options));
}

Handle Communicator::allgather_async(ConstBuffer in, Buffer out, const CallOptions& options) {
  return Handle(state_->start(allgather_request(in, out, rank(), ranks(), options)));
}

void Communicator::allgather(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                             const CallOptions& options) {
  state_->run(uneven_allgather_request(in, out, counts, rank(), ranks(), options));
}

Handle Communicator::allgather_async(ConstBuffer in, Buffer out, std::span<const std::size_t> counts,
                                     const CallOptions& options) {
  return Handle(state_->start(uneven_allgather_request(in, out, counts, rank(), ranks(), options)));
}

void Communicator::broadcast(Buffer data, int root, const CallOptions& options) {
  state_->run(broadcast_request(data, root, ranks(), options));
}

Handle Communicator::broadcast_async(Buffer data, int root, const CallOptions& options) {
  return Handle(state_->start(broadcast_request(data, root, ranks(), options)));
}

void Communicator::reduce(ConstBuffer in, Buffer out, int root, Op op, const CallOptions& options) {
  state_->run(reduce_request(in, out, root, op, rank(), ranks(), options));
}

void Communicator::reduce(Buffer data, int root, Op op, const CallOptions& options) {
  reduce(data, data, root, op, options);
}

Handle Communicator::reduce_async(ConstBuffer in, Buffer out, int root, Op op, const CallOptions& options) {
  return Handle(state_->start(reduce_request(in, out, root, op, rank(), ranks(), options)));
}

Handle Communicator::reduce_async(Buffer data, int root, Op op, const CallOptions& options) {
  return reduce_async(data, data, root, op, options);
}

void Communicator::gather(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  state_->run(gather_request(in, out, root, rank(), ranks(), options));
}

Handle Communicator::gather_async(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return Handle(state_->start(gather_request(in, out, root, rank(), ranks(), options)));
}

void Communicator::scatter(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  state_->run(scatter_request(in, out, root, rank(), ranks(), options));
}

Handle Communicator::scatter_async(ConstBuffer in, Buffer out, int root, const CallOptions& options) {
  return Handle(state_->start(scatter_request(in, out, root, rank(), ranks(), options)));
}

void Communicator::all_to_all(ConstBuffer in, Buffer out, const CallOptions& options) {
  state_->run(all_to_all_request(in, out, ranks(), options));
}

Handle Communicator::all_to_all_async(ConstBuffer in, Buffer out, const CallOptions& options) {
  return Handle(state_->start(all_to_all_request(in, out, ranks(), options)));
}

void Communicator::all_to_all(ConstBuffer in, std::span<const std::size_t> to, Buffer out,
                              std::span<const std::size_t> from, const CallOptions& options) {
  state_->run(uneven_all_to_all_request(in, to, out, from, rank(), ranks(), options));
}

Handle Communicator::all_to_all_async(ConstBuffer in, std::span<const std::size_t> to, Buffer out,
                                      std::span<const std::size_t> from, const CallOptions& options) {
  return Handle(state_->start(uneven_all_to_all_request(in, to, out, from, rank(), ranks(), options)));
}

void Communicator::barrier(const CallOptions& options) { state_->run(barrier_request(options)); }

Handle Communicator::barrier_async(const CallOptions& options) {
  return Handle(state_->start(barrier_request(options)));
}

void Communicator::send(ConstBuffer data, int to, const CallOptions& options) { send_async(data, to, options).wait(); }

void Communicator::receive(Buffer data, int from, const CallOptions& options) {
  receive_async(data, from, options).wait();
}

Handle Communicator::send_async(ConstBuffer data, int to, const CallOptions& options) {
  check_buffer(data, "data");
  check_rank("rank", to, ranks());
  if (to == rank()) throw UsageError("a rank can't send to itself");
  return Handle(state_->start_message(message_call(data.dtype, data.elements), bytes_at(data.data), nullptr, to,
                                      Direction::out, options));
}

Handle Communicator::receive_async(Buffer data, int from, const CallOptions& options) {
  check_buffer(data, "data");
  check_rank("rank", from, ranks());
  if (from == rank()) throw UsageError("a rank can't receive from itself");
  return Handle(state_->start_message(message_call(data.dtype, data.elements), nullptr, bytes_at(data.data), from,
                                      Direction::in, options));
}

Communicator Communicator::split(int colour, int key) {
  state_->check_open();
  World& world = *state_->world;
  const std::array<std::int64_t, 3> mine = {colour, key, world.splits++};
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(ranks()));
  allgather(mine, all);

  std::vector<int> order;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (all[mine.size() * static_cast<std::size_t>(peer)] == colour) order.push_back(peer);
  }
  // A number that is new to all of them, even if other threads split other communicators meanwhile: it is made of one
  // member's rank and of how often that has split.
  const std::int64_t splits = all[mine.size() * static_cast<std::size_t>(order.front()) + 2];
  const std::int64_t context = splits * world.engine->ranks() + state_->members[order.front()];
  if (context >= kMessages) throw UsageError("no more communicators can be made: there were too many already");
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return all[mine.size() * static_cast<std::size_t>(a) + 1] < all[mine.size() * static_cast<std::size_t>(b) + 1];
  });
  std::vector<int> members;
  std::vector<int> hosts;
  int own = 0;
  for (const int peer : order) {
    if (peer == rank()) own = static_cast<int>(members.size());
    members.push_back(state_->members[peer]);
    hosts.push_back(state_->hosts[peer]);
  }
  return Communicator(std::make_shared<State>(state_->world, static_cast<std::uint32_t>(context), own,
                                              std::move(members), std::move(hosts)));
}

Window Communicator::window(std::size_t bytes) {
  state_->check_open();
  Window window;
  std::shared_ptr<std::byte> memory = shared_memory(*state_->world->engine, bytes, Contents::zeros);
  window.data_ = memory.get();
  window.bytes_ = bytes;
  // The memory goes first, and then perhaps the engine.
  const auto let_go = [world = state_->world, memory](void*) mutable { memory.reset(); };
  memory.reset();
  window.owner_ = std::shared_ptr<void>(window.data_, let_go);
  return window;
}

std::string Communicator::explain(std::string_view collective, std::size_t bytes) {
  return state_->explain(parse_collective(collective), bytes);
}

void Communicator::abort(const std::string& why) {
  state_->check_open();
  state_->world->engine->abort(why);
}

void Communicator::close() { state_->close(); }

}  // namespace trireme
