#include "communicator/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace trireme {
namespace {

/// Elements of one of so many nearly equal parts, of which the first ones have one more.
std::size_t part_of(std::size_t elements, int parts, int part) {
  const auto count = static_cast<std::size_t>(parts);
  return elements / count + (static_cast<std::size_t>(part) < elements % count ? 1 : 0);
}

}  // namespace

std::shared_ptr<std::byte> shared_memory(Engine& engine, std::size_t bytes, Contents contents) {
  if (transport::Arena* arena = engine.arena(); arena != nullptr) {
    std::byte* data = contents == Contents::zeros ? arena->take_zeros(bytes) : arena->take(bytes);
    if (data == nullptr) {
      throw UsageError(fmt::format("there is no room for {} bytes of shared memory beside what is in use", bytes));
    }
    return {data, [arena](std::byte* start) { arena->give_back(start); }};
  }
  constexpr std::size_t kPage = 4096;
  const bool possible = bytes <= std::numeric_limits<std::ptrdiff_t>::max() - kPage;
  void* const memory =
      possible ? std::aligned_alloc(kPage, (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage) : nullptr;
  if (memory == nullptr) throw UsageError(fmt::format("there is no room for {} bytes of memory", bytes));
  auto* data = static_cast<std::byte*>(memory);
  std::memset(data, 0, bytes);
  return {data, [](std::byte* start) { std::free(start); }};
}

Communicator::State::State(std::shared_ptr<World> world_of, std::uint32_t context_of, int rank_of_this,
                           std::vector<int> members_of, std::vector<int> hosts_of)
    : world(std::move(world_of)),
      selector_(hosts_of, world->tuning, world->forced, world->cores),
      sent_(members_of.size()),
      received_(members_of.size()) {
  context = context_of;
  rank = rank_of_this;
  members = std::move(members_of);
  hosts = std::move(hosts_of);
  rank_of.assign(world->engine->ranks(), -1);
  for (int i = 0; i < ranks(); ++i) rank_of[members[i]] = i;
  world->engine->add(*this);
  ++world->open;
}

Communicator::State::~State() {
  try {
    close();
  } catch (const Error&) {
    // Who wants to know calls close().
  }
  world->engine->remove(*this);
}

// Windows may live on, and with them the engine; but after its last communicator this rank will do nothing for others.
void Communicator::State::close() {
  if (!closed_.exchange(true) && --world->open == 0) world->engine->finish();
}

void Communicator::State::check_open() const {
  if (closed_) throw UsageError("this communicator has been closed");
}

ReadyPlan& Communicator::State::plan_for(const Pick& pick, int root, Buffers buffers) {
  const PlanKey key{pick.algorithm, root, pick.setting.segments, buffers};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  Setting setting = pick.setting;
  setting.root = root;
  check(*pick.algorithm, setting);
  ReadyPlan& ready = plans_[key];
  ready.plan =
      make_plan({.algorithm = pick.algorithm, .setting = setting, .rank = rank, .buffers = buffers, .hosts = hosts});
  return ready;
}

std::shared_ptr<Handle::State> Communicator::State::take_idle(ReadyPlan& ready) {
  if (ready.idle.empty()) {
    auto fresh = std::make_shared<Handle::State>();
    fresh->home = &ready;
    return fresh;
  }
  std::shared_ptr<Handle::State> operation = std::move(ready.idle.back());
  ready.idle.pop_back();
  operation->done.store(0, std::memory_order_relaxed);
  return operation;
}

void Communicator::State::recycle(const std::shared_ptr<Handle::State>& operation) {
  const std::lock_guard lock(mutex_);
  operation->home->idle.push_back(operation);
}

const Pick& Communicator::State::pick(const Request& request, std::size_t bytes) {
  const bool uneven = !request.inputs.empty();
  const Pick& pick = uneven && request.options.algorithm.empty()
                         ? selector_.pick_direct(request.call.collective)
                         : selector_.pick(request.call.collective, bytes, request.options.algorithm);
  if (uneven && pick.algorithm->name != "direct") {
    throw UsageError(fmt::format("{}{} can't have shares of different sizes; only direct can",
                                 request.options.algorithm.empty() ? "TRIREME_ALGORITHM: " : "", pick.algorithm->name));
  }
  if (world->log.wants(LogLevel::info)) {
    const Algorithm*& said = said_[{request.call.collective, size_class(bytes)}];
    if (said != pick.algorithm) {
      said = pick.algorithm;
      world->log.say(LogLevel::info,
                     fmt::format("{} of {} on {} ranks runs by {}: {}", to_string(request.call.collective),
                                 format_bytes(static_cast<double>(bytes)), ranks(), pick.algorithm->name, pick.why));
    }
  }
  return pick;
}

std::shared_ptr<Handle::State> Communicator::State::prepare(Request& request) {
  check_open();
  const std::lock_guard lock(mutex_);
  if (request.call.kind != CallKind::collective) return prepare_message(request);
  const std::size_t bytes = request.call.elements * bytes_of(request.call.dtype);
  // A single share of the result has no room for the others: the input stays apart, even where that share lies in it.
  const bool own_share =
      request.call.collective == Collective::reduce_scatter || request.call.collective == Collective::scatter;
  const Buffers buffers =
      request.input == request.output && !own_share && request.inputs.empty() ? Buffers::one : Buffers::two;
  const int of_class = size_class(bytes);
  const bool plain = request.options.algorithm.empty() && request.inputs.empty();
  Last& last = last_[static_cast<std::size_t>(request.call.collective)];
  const bool same = plain && last.ready != nullptr && last.size_class == of_class && last.root == request.root &&
                    last.buffers == buffers;
  if (!same) {
    last = {};
    const Pick& picked = pick(request, bytes);
    last = {plain ? of_class : -1, request.root, buffers, &picked, &plan_for(picked, request.root, buffers)};
  }
  ReadyPlan& ready = *last.ready;
  std::shared_ptr<Handle::State> operation = take_idle(ready);
  request.call.algorithm = static_cast<std::uint8_t>(last.pick->algorithm - algorithms().data());
  operation->call = request.call;
  operation->call.pack(operation->packed);
  operation->group = this;
  operation->plan = &ready.plan;
  operation->context = context;
  operation->from = -1;
  operation->divisor = request.call.reduces && request.call.op == Op::average ? ranks() : 1;
  operation->patience = patience(request.options);
  place_blocks(*operation, request);
  choose_segments(*operation, request);
  // Last, since a call that throws does not count.
  operation->sequence = next_sequence_++;
  return operation;
}

std::shared_ptr<Handle::State> Communicator::State::prepare_message(const Request& request) {
  const bool receives = request.call.kind == CallKind::receive;
  const int peer = static_cast<int>(request.call.root);
  const auto [found, fresh] = messages_.try_emplace({peer, receives});
  ReadyPlan& ready = found->second;
  if (fresh) {
    Program program;
    if (receives) {
      program.receive(0, peer);
    } else {
      program.send(0, peer);
    }
    ready.plan = compile(program, Collective::barrier, rank, ranks(), 0, receives ? Buffers::one : Buffers::two);
  }
  std::shared_ptr<Handle::State> operation = take_idle(ready);
  operation->call = request.call;
  request.call.shared().pack(operation->packed);
  request.call.pack(operation->one_end);
  operation->group = this;
  operation->plan = &ready.plan;
  operation->context = context | kMessages;
  operation->from = receives ? members[peer] : Operation::kNobody;
  operation->divisor = 1;
  operation->patience = patience(request.options);
  const std::size_t elements = request.call.elements;
  operation->blocks.assign(1, {.input = request.input, .work = request.output, .elements = elements, .sent = elements});
  choose_segments(*operation, request);
  // Last, since a call that throws does not count.
  operation->sequence = (receives ? received_ : sent_)[peer]++;
  return operation;
}

// Every block's elements, where they come from and where they go.
void Communicator::State::place_blocks(Operation& operation, const Request& request) const {
  const int blocks = operation.plan->blocks;
  const std::size_t bytes = bytes_of(request.call.dtype);
  operation.blocks.assign(blocks, {});
  const Collective collective = request.call.collective;
  if (!request.shares) {
    const bool output = collective != Collective::reduce || rank == request.root;
    std::size_t begin = 0;
    for (int i = 0; i < blocks; ++i) {
      BlockPlace& block = operation.blocks[i];
      block.elements = block.sent = part_of(request.call.elements, blocks, i);
      if (request.input != nullptr) block.input = request.input + begin * bytes;
      if (output && request.output != nullptr) block.work = request.output + begin * bytes;
      begin += block.elements;
    }
    place_scratch(operation);
    return;
  }
  // A rank has all shares as input, or its own; the same for the result.
  const bool all_inputs = collective == Collective::reduce_scatter || collective == Collective::all_to_all ||
                          (collective == Collective::scatter && rank == request.root);
  const bool own_input = collective == Collective::allgather || collective == Collective::gather;
  const bool all_outputs = collective == Collective::allgather || collective == Collective::all_to_all ||
                           (collective == Collective::gather && rank == request.root);
  const bool own_output = collective == Collective::reduce_scatter || collective == Collective::scatter;
  const int parts = blocks / ranks();
  std::size_t in_begin = 0;
  std::size_t out_begin = 0;
  for (int share = 0; share < ranks(); ++share) {
    const std::size_t count = request.counts.empty() ? request.share : request.counts[share];
    const std::size_t in_count = request.inputs.empty() ? count : request.inputs[share];
    std::size_t begin = 0;
    for (int part = 0; part < parts; ++part) {
      BlockPlace& block = operation.blocks[share * parts + part];
      block.elements = part_of(count, parts, part);
      block.sent = part_of(in_count, parts, part);
      const bool own = share == rank;
      if (all_inputs) block.input = request.input + (in_begin + begin) * bytes;
      if (own_input && own) block.input = request.input + begin * bytes;
      if (all_outputs) block.work = request.output + (out_begin + begin) * bytes;
      if (own_output && own) block.work = request.output + begin * bytes;
      begin += block.elements;
    }
    in_begin += in_count;
    out_begin += count;
  }
  place_scratch(operation);
}

// Memory for blocks that pass through this rank. It stays with the operation for the next time.
void Communicator::State::place_scratch(Operation& operation) const {
  const std::size_t bytes = bytes_of(operation.call.dtype);
  std::size_t needed = 0;
  const auto lacks = [&](std::size_t i) { return operation.blocks[i].work == nullptr && operation.plan->written[i]; };
  for (std::size_t i = 0; i < operation.blocks.size(); ++i) {
    if (lacks(i)) needed += operation.blocks[i].elements;
  }
  if (needed * bytes > operation.scratch_bytes) {
    operation.scratch = shared_memory(*world->engine, needed * bytes, Contents::anything);
    operation.scratch_bytes = needed * bytes;
  }
  std::size_t used = 0;
  for (std::size_t i = 0; i < operation.blocks.size(); ++i) {
    if (!lacks(i)) continue;
    operation.blocks[i].work = operation.scratch.get() + used * bytes;
    used += operation.blocks[i].elements;
  }
}

// All ranks must cut alike, so only what all of them know may matter.
void Communicator::State::choose_segments(Operation& operation, const Request& request) const {
  operation.segments = 1;
  if (!request.inputs.empty()) return;
  std::size_t largest = 0;
  for (const BlockPlace& block : operation.blocks) largest = std::max(largest, block.elements);
  const std::size_t message =
      largest * bytes_of(request.call.dtype) * static_cast<std::size_t>(operation.plan->most_blocks);
  operation.segments = static_cast<int>(std::max<std::size_t>(1, (message + kSegmentBytes - 1) / kSegmentBytes));
}

Clock::duration Communicator::State::patience(const CallOptions& options) const {
  if (options.deadline.count() < 0) throw UsageError("a call can't have a deadline before it begins");
  return options.deadline.count() > 0 ? at_most_years(options.deadline) : world->patience;
}

void Communicator::State::run(Request request) {
  const std::shared_ptr<Handle::State> operation = prepare(request);
  world->engine->run(operation);
  recycle(operation);
}

std::shared_ptr<Handle::State> Communicator::State::start(Request request) {
  std::shared_ptr<Handle::State> operation = prepare(request);
  operation->owner = shared_from_this();
  world->engine->start(operation);
  return operation;
}

std::string Communicator::State::explain(Collective collective, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Pick& pick = selector_.pick(collective, bytes, {});
  return fmt::format("{} of {} on {} ranks runs by {}: {}", to_string(collective),
                     format_bytes(static_cast<double>(bytes)), ranks(), pick.algorithm->name, pick.why);
}

}  // namespace trireme
