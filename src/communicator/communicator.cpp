// The public calls: each makes a request of its arguments, and has it run.
#include "trireme/communicator.h"

#include "communicator/request.h"
#include "communicator/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <thread>

namespace trireme {

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

void Communicator::send(ConstBuffer data, int to, const CallOptions& options) {
  state_->run(send_request(data, to, rank(), ranks(), options));
}

void Communicator::receive(Buffer data, int from, const CallOptions& options) {
  state_->run(receive_request(data, from, rank(), ranks(), options));
}

Handle Communicator::send_async(ConstBuffer data, int to, const CallOptions& options) {
  return Handle(state_->start(send_request(data, to, rank(), ranks(), options)));
}

Handle Communicator::receive_async(Buffer data, int from, const CallOptions& options) {
  return Handle(state_->start(receive_request(data, from, rank(), ranks(), options)));
}

Communicator Communicator::split(int colour, int key) {
  state_->check_open();
  World& world = *state_->world;
  const std::array<std::int64_t, 3> mine = {colour, key, world.splits++};
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(ranks()));
  Request request = allgather_request(mine, all, rank(), ranks(), {});
  request.call.shape = Call::kSplit;
  state_->run(request);

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
