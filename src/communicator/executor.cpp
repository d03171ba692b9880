// How the engine runs operations: nodes go on when what they wait for has ended and their messages are there.
#include "communicator/engine.h"
#include "kernels/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme {
namespace {

using transport::Envelope;
using transport::Incoming;
using transport::Piece;

/// Segments under way at once. More would only take memory: what comes early is kept until its turn.
constexpr int kMostSlots = 64;

/// The same where ranks share memory, and what is offered to others is not part of it: what is copied to and fro should
/// still be in the cache when it comes back.
constexpr int kMostSlotsStaged = 4;

bool all_wait_for_all(Collective collective) {
  switch (collective) {
    case Collective::allreduce:
    case Collective::reduce_scatter:
    case Collective::allgather:
    case Collective::all_to_all:
    case Collective::barrier: return true;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scatter: break;
  }
  return false;
}

/// Whether what was lent, if anything, is cut as this rank's blocks are. One piece to read may be all of them.
bool is_lent_right(const Operation& operation, const Node& node, int segment, const Incoming& incoming) {
  if (incoming.lent.empty() || (incoming.lent.size() == 1 && !incoming.offered)) return true;
  if (incoming.lent.size() != static_cast<std::size_t>(node.run.count)) return false;
  const std::size_t element = bytes_of(operation.call.dtype);
  for (int i = 0; i < node.run.count; ++i) {
    const auto [begin, end] = operation.part(operation.blocks[node.run.first + i].elements, segment);
    if (incoming.lent[i].bytes != (end - begin) * element) return false;
  }
  return true;
}

}  // namespace

// Sizes what the operation needs while it runs; memory from its last run is used again.
void Engine::prepare(Operation& operation) {
  const Plan& plan = *operation.plan;
  operation.slots_used = std::min(operation.segments, is_staged(operation) ? kMostSlotsStaged : kMostSlots);
  if (static_cast<int>(operation.slots.size()) < operation.slots_used) operation.slots.resize(operation.slots_used);
  for (int i = 0; i < operation.slots_used; ++i) {
    Slot& slot = operation.slots[i];
    slot.segment = -1;
    slot.nodes.resize(plan.nodes.size());
    slot.sources.resize(plan.sources.size());
    slot.sends.resize(plan.nodes.size());
    slot.pieces.resize(plan.send_blocks);
  }
  operation.segments_left = operation.segments;
  operation.early.clear();
  operation.there.clear();
}

// Whether what it offers is copied to memory that the peers see, and the answers back.
bool Engine::is_staged(const Operation& operation) const {
  if (!host_ || tcp_ || operation.segments == 1 || !operation.plan->offers) return false;
  const auto block = std::ranges::find_if(
      operation.blocks, [](const BlockPlace& each) { return each.work != nullptr && each.elements > 0; });
  return block != operation.blocks.end() && !host_->shows(block->work);
}

// Whether this rank's part of it is a matter of microseconds: few bytes, between ranks that have cores of their own and
// see the same memory. Of some calls in uneven shares nobody knows how many there are.
bool Engine::is_short(const Operation& operation) const {
  constexpr std::size_t kShort = 64 << 10;
  return !tcp_ && !parts_.crowded && operation.call.shape == 0 &&
         operation.call.elements * bytes_of(operation.call.dtype) <= kShort;
}

// When a rank came to an operation must be known if it may be what others have waited for: a peer slept until now. Or if
// not all ranks wait for all others, so that one which is early may have no time of its own where one that is late has.
void Engine::record(Operation& operation, bool over) {
  Board& board = *parts_.board;
  const bool collective = operation.call.kind == CallKind::collective;
  const auto& call = collective ? operation.packed : operation.one_end;
  const bool awaited = host_ && host_->take_woken();
  if (std::exchange(operation.recorded, true)) {
    if (over) board.end(parts_.rank, operation.record);
  } else if (over) {
    const bool must = awaited || (collective && !all_wait_for_all(operation.call.collective));
    board.pass(parts_.rank, operation.context, operation.sequence, call, must ? Timing::own : Timing::shared);
  } else {
    operation.record = board.begin(parts_.rank, operation.context, operation.sequence, call);
  }
}

void Engine::launch(const std::shared_ptr<Operation>& operation) {
  Operation& op = *operation;
  if (failed_) {
    op.error = error_;
    op.recorded = true;  // It was never begun.
    complete(op);
    return;
  }
  // What came early may be on loan from a rank that has failed since: that is heard first.
  if (!early_.empty() && host_) host_->progress();
  op.started = {};
  op.deadline = op.asks_at = Clock::time_point::max();
  op.slots_used = 0;
  op.recorded = false;
  active_.push_back(operation);
  prepare(op);
  if (!failing_) remember(op);
  if (!failing_) take_early(op);
  if (!failing_) check_gone(op);
  // A short one that somebody waits for is recorded when it has to wait too, or when it is over.
  if (failing_ || op.asks_end || !is_short(op)) record(op);
  if (failing_) return;

  const std::size_t bytes = bytes_of(op.call.dtype);
  for (const int block : op.plan->copied) {
    const BlockPlace& place = op.blocks[block];
    if (place.elements > 0 && place.work != place.input) {
      std::memmove(place.work, place.input, place.elements * bytes);
    }
  }
  if (op.plan->nodes.empty()) {
    complete(op);
    return;
  }
  for (int slot = 0; slot < op.slots_used; ++slot) activate(op, slot, slot);
  run_ready();
}

// Messages that came before the operation was begun. A rank may be far behind the others, and they in order: so there
// may be many, of which the first are wanted. Those of operations before that did not want them show a disagreement.
void Engine::take_early(Operation& operation) {
  std::size_t wanted = operation.plan->sources.size() * static_cast<std::size_t>(operation.segments);
  const bool none_wanted = wanted == 0;
  for (std::size_t i = early_begin_; i < early_.size() && (wanted > 0 || none_wanted); ++i) {
    Early& early = early_[i];
    if (early.taken || early.envelope.context != operation.context) continue;
    if (early.envelope.sequence < operation.sequence) {
      compare(early);
      if (failing_) return;
    }
    if (!operation.takes(early.envelope.context, early.envelope.sequence, early.peer)) continue;
    if (!agrees(operation, early.peer, early.envelope)) return;
    std::swap(operation.early.emplace_back(), early);
    early.taken = true;
    if (wanted > 0) --wanted;
  }
  while (early_begin_ < early_.size() && early_[early_begin_].taken) ++early_begin_;
  if (early_begin_ == early_.size() || early_begin_ > early_.size() / 2) {
    early_.erase(early_.begin(), early_.begin() + static_cast<std::ptrdiff_t>(early_begin_));
    early_begin_ = 0;
  }
}

bool Engine::compare(const Early& early) {
  return compare({early.peer, early.envelope.context, early.envelope.sequence, Call::unpack(early.envelope.call)});
}

void Engine::activate(Operation& operation, int slot_number, int segment) {
  const Plan& plan = *operation.plan;
  Slot& slot = operation.slots[slot_number];
  slot.segment = segment;
  slot.nodes_left = static_cast<int>(plan.nodes.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    slot.nodes[i] = {.waits = plan.nodes[i].waits, .missing = plan.nodes[i].sources};
  }
  for (const int node : plan.starts) ready_.push_back({&operation, slot_number, node});
  for (std::size_t i = 0; i < operation.early.size();) {
    if (static_cast<int>(operation.early[i].envelope.segment) != segment) {
      ++i;
      continue;
    }
    Early early = std::move(operation.early[i]);
    operation.early.erase(operation.early.begin() + static_cast<std::ptrdiff_t>(i));
    deliver(operation, early.peer, early.envelope, std::move(early.arrival));
  }
}

Operation* Engine::find(std::uint32_t context, std::uint32_t sequence, int peer) {
  for (const auto& operation : active_) {
    if (operation->takes(context, sequence, peer)) return operation.get();
  }
  return nullptr;
}

std::size_t Engine::place(int peer, const Envelope& envelope, std::size_t bytes, std::span<Piece> pieces) {
  Operation* operation = find(envelope.context, envelope.sequence, peer);
  if (operation == nullptr || !std::equal(envelope.call, envelope.call + 2, operation->packed)) return 0;
  Slot& slot = operation->slots[envelope.segment % static_cast<unsigned>(operation->slots_used)];
  if (slot.segment != static_cast<int>(envelope.segment)) return 0;
  const auto& arrivals = operation->plan->arrivals[operation->group->rank_of[peer]];
  if (envelope.index >= arrivals.size()) return 0;
  const int number = arrivals[envelope.index].node;
  const Node& node = operation->plan->nodes[number];
  Arrival& place = slot.sources[node.first_source + arrivals[envelope.index].source];
  const bool fits = node.kind == NodeKind::receive && slot.nodes[number].waits == 0 && slot.nodes[number].missing > 0 &&
                    !slot.nodes[number].settled && !place.promised &&
                    static_cast<std::size_t>(node.run.count) <= pieces.size() &&
                    operation->part_bytes(node.run, slot.segment) == bytes;
  if (!fits) return 0;
  const std::size_t element = bytes_of(operation->call.dtype);
  for (int i = 0; i < node.run.count; ++i) {
    const BlockPlace& block = operation->blocks[node.run.first + i];
    const auto [begin, end] = operation->part(block.elements, slot.segment);
    pieces[i] = {block.work + begin * element, (end - begin) * element};
  }
  place.promised = true;
  return static_cast<std::size_t>(node.run.count);
}

void Engine::arrived(int peer, const Envelope& envelope, const Incoming& incoming) {
  Arrival arrival{.here = true, .incoming = incoming};
  if (failing_ || envelope.context == 0) {
    if (envelope.context == 0) take_control(peer, envelope, incoming);
    arrival.incoming.release();
    return;
  }
  Operation* operation = find(envelope.context, envelope.sequence, peer);
  if (operation == nullptr) {
    // Of an operation that this rank has not begun, unless the ranks disagree.
    compare({peer, envelope.context, envelope.sequence, Call::unpack(envelope.call)});
    if (incoming.data != nullptr) set_aside(arrival);
    if (!failing_) early_.push_back({peer, envelope, std::move(arrival)});
    return;
  }
  if (!agrees(*operation, peer, envelope)) {
    arrival.incoming.release();  // or the news of it would wait behind it
    return;
  }
  deliver(*operation, peer, envelope, std::move(arrival));
  run_ready();
}

// Copies a message out of memory that the transport needs for others.
void Engine::set_aside(Arrival& arrival) {
  arrival.aside = Aside(asides_, arrival.incoming.data, arrival.incoming.bytes);
  arrival.incoming.release();
  arrival.incoming.data = arrival.aside.data();
}

// The transport gets room back in the order in which it gave it: what has long been waiting holds up all that came
// later.
void Engine::make_room(int peer) {
  for (const auto& operation : active_) {
    const int rank = operation->group->rank_of[peer];
    if (rank < 0) continue;
    const Plan& plan = *operation->plan;
    for (int i = 0; i < operation->slots_used; ++i) {
      Slot& slot = operation->slots[i];
      if (slot.segment < 0) continue;
      for (const Address& address : plan.arrivals[rank]) {
        Arrival& arrival = slot.sources[plan.nodes[address.node].first_source + address.source];
        const Incoming& incoming = arrival.incoming;
        const bool held = arrival.here && !arrival.aside && incoming.data != nullptr && incoming.lent.empty();
        if (held) set_aside(arrival);
      }
    }
  }
}

void Engine::deliver(Operation& operation, int peer, const Envelope& envelope, Arrival&& arrival) {
  if (arrival.incoming.scarce && !arrival.aside) make_room(peer);
  const Plan& plan = *operation.plan;
  const int number = static_cast<int>(envelope.segment % static_cast<unsigned>(operation.slots_used));
  Slot& slot = operation.slots[number];
  const auto& arrivals = plan.arrivals[operation.group->rank_of[peer]];
  const auto refuse = [&](ErrorKind kind, const std::string& why, const std::vector<int>& blamed) {
    fail(kind, why, blamed);
    if (!arrival.aside) arrival.incoming.release();
  };
  const bool expected =
      envelope.index < arrivals.size() && envelope.segment < static_cast<unsigned>(operation.segments);
  if (!expected) {
    refuse(ErrorKind::protocol, parts_.names[peer] + " sent a message that is no part of " + operation.call.describe(),
           {peer});
    return;
  }
  const auto segment = static_cast<int>(envelope.segment);
  if (slot.segment >= 0 && slot.segment < segment) {
    if (arrival.incoming.data != nullptr && !arrival.aside) set_aside(arrival);
    operation.early.push_back({peer, envelope, std::move(arrival)});
    return;
  }
  const auto [node_number, source] = arrivals[envelope.index];
  const Node& node = plan.nodes[node_number];
  NodeState& state = slot.nodes[node_number];
  const std::size_t bytes = operation.part_bytes(node.run, slot.segment);
  Arrival& place = slot.sources[node.first_source + source];
  const Incoming& incoming = arrival.incoming;
  // Of uneven shares the call that ranks compare has no more than a hash, or nothing.
  if (incoming.bytes != bytes && operation.call.shape != 0) {
    const std::size_t element = bytes_of(operation.call.dtype);
    refuse(ErrorKind::usage,
           fmt::format("ranks disagree in {} of {} in uneven shares (operation {}): {} sends {} "
                       "elements to {}, which expects {}",
                       to_string(operation.call.collective), to_string(operation.call.dtype), operation.sequence,
                       parts_.names[peer], incoming.bytes / element, parts_.names[parts_.rank], bytes / element),
           {std::min(peer, parts_.rank), std::max(peer, parts_.rank)});
    return;
  }
  const bool came_before = slot.segment != segment || place.here || source < state.folded || state.ended ||
                           state.settled || place.promised != incoming.placed;
  if (came_before || incoming.bytes != bytes || !is_lent_right(operation, node, slot.segment, incoming)) {
    refuse(ErrorKind::protocol,
           parts_.names[peer] + " sent a message twice or of another size in " + operation.call.describe(), {peer});
    return;
  }
  place = std::move(arrival);
  // One piece that was lent is as good as bytes that came.
  if (place.incoming.lent.size() == 1 && !place.incoming.offered) place.incoming.data = place.incoming.lent[0].data;
  --state.missing;
  if (state.waits == 0) ready_.push_back({&operation, number, node_number});
  const bool waits = state.waits > 0 || state.missing > 0;
  if (waits && place.incoming.scarce && place.incoming.lent.empty() && !place.aside) set_aside(place);
}

// In the order in which they became ready, so that segments go out in theirs.
void Engine::run_ready() {
  if (running_ready_) return;
  running_ready_ = true;
  for (std::size_t i = 0; i < ready_.size() && !failing_; ++i) {
    const Ready ready = ready_[i];
    if (ready.operation != nullptr) go_on(ready);
  }
  ready_.clear();
  running_ready_ = false;
}

void Engine::go_on(const Ready& ready) {
  Operation& operation = *ready.operation;
  Slot& slot = operation.slots[ready.slot];
  const Node& node = operation.plan->nodes[ready.node];
  NodeState& state = slot.nodes[ready.node];
  // It may have been said twice that a fold can go on, and its slot may be at the next segment already.
  if (state.waits > 0 || state.ended) return;
  if (state.settled) {
    end(operation, ready.slot, ready.node);
  } else if (node.kind == NodeKind::send) {
    post(operation, slot, ready.node);
  } else if (node.kind == NodeKind::receive) {
    if (state.missing > 0) return;
    take(operation, slot, ready.node);
    end(operation, ready.slot, ready.node);
  } else {
    int here = 0;
    while (state.folded + here < node.sources && slot.sources[node.first_source + state.folded + here].here) ++here;
    const bool all = state.folded + here == node.sources;
    if (here == 0 || (!all && !node.piecemeal)) return;
    fold(operation, slot, ready.node, here);
    if (all) end(operation, ready.slot, ready.node);
  }
}

void Engine::post(Operation& operation, Slot& slot, int node_number) {
  const Node& node = operation.plan->nodes[node_number];
  Send& send = slot.sends[node_number];
  const std::size_t element = bytes_of(operation.call.dtype);
  const auto first = static_cast<std::size_t>(node.first_piece);
  for (int i = 0; i < node.run.count; ++i) {
    const BlockPlace& block = operation.blocks[node.run.first + i];
    const auto [begin, end] = operation.part(node.from_input ? block.sent : block.elements, slot.segment);
    // A transport only reads what it sends, unless it was offered; that is never the input.
    auto* data = node.from_input ? const_cast<std::byte*>(block.input) : block.work;
    slot.pieces[first + i] = {data + begin * element, (end - begin) * element};
  }
  send.peer = operation.group->members[node.peer];
  send.sending = node.sending;
  send.envelope = {.context = operation.context,
                   .sequence = operation.sequence,
                   .segment = static_cast<std::uint32_t>(slot.segment),
                   .index = static_cast<std::uint32_t>(node.index),
                   .call = {operation.packed[0], operation.packed[1]}};
  send.pieces = std::span(slot.pieces).subspan(first, node.run.count);
  send.operation = &operation;
  send.slot = static_cast<int>(&slot - operation.slots.data());
  send.node = node_number;
  route(send.peer).post(send);
}

void Engine::sent(transport::Outgoing& outgoing, bool answered) {
  if (outgoing.envelope.context == 0) {
    static_cast<Control&>(outgoing).sent = true;
    return;
  }
  Send& send = static_cast<Send&>(outgoing);
  Operation& operation = *send.operation;
  const int answer = operation.plan->nodes[send.node].answer;
  if (answered && answer >= 0) operation.slots[send.slot].nodes[answer].settled = true;
  end(operation, send.slot, send.node);
  run_ready();
}

// Puts what came into its place.
void Engine::take(Operation& operation, Slot& slot, int node_number) {
  const Node& node = operation.plan->nodes[node_number];
  Arrival& arrival = slot.sources[node.first_source];
  const Incoming& incoming = arrival.incoming;
  if (!incoming.placed) {
    const std::size_t element = bytes_of(operation.call.dtype);
    const std::byte* data = incoming.data;
    for (int i = 0; i < node.run.count; ++i) {
      const BlockPlace& block = operation.blocks[node.run.first + i];
      const auto [begin, end] = operation.part(block.elements, slot.segment);
      const std::size_t bytes = (end - begin) * element;
      if (bytes == 0) continue;
      kernels::copy(block.work + begin * element, data != nullptr ? data : incoming.lent[i].data, bytes);
      if (data != nullptr) data += bytes;
    }
  }
  arrival.incoming.release();
  arrival.aside.reset();
  arrival.here = false;
}

// Adds the next so many sources, in order, and with the last of them answers those that offered their place for it.
void Engine::fold(Operation& operation, Slot& slot, int node_number, int sources) {
  const Node& node = operation.plan->nodes[node_number];
  NodeState& state = slot.nodes[node_number];
  const auto arrivals = std::span(slot.sources).subspan(node.first_source + state.folded, sources);
  const auto replies = std::span(operation.plan->sources).subspan(node.first_source + state.folded, sources);
  const bool last = state.folded + sources == node.sources;
  const std::size_t element = bytes_of(operation.call.dtype);
  std::size_t offset = 0;
  for (int i = 0; i < node.run.count; ++i) {
    const BlockPlace& block = operation.blocks[node.run.first + i];
    const auto [begin, end] = operation.part(block.elements, slot.segment);
    if (begin == end) continue;
    const bool from_input = node.from_input && state.folded == 0;
    fold_sources_.assign(1, (from_input ? block.input : block.work) + begin * element);
    fold_destinations_.assign(1, block.work + begin * element);
    for (int source = 0; source < sources; ++source) {
      const Incoming& incoming = arrivals[source].incoming;
      fold_sources_.push_back(incoming.data != nullptr ? incoming.data + offset : incoming.lent[i].data);
      if (incoming.offered && replies[source].reply >= 0) fold_destinations_.push_back(incoming.lent[i].data);
    }
    kernels::fold(operation.call.op, operation.call.dtype, fold_destinations_, fold_sources_, end - begin,
                  last && node.divides ? operation.divisor : 1);
    offset += (end - begin) * element;
  }
  for (int source = 0; source < sources; ++source) {
    Incoming& incoming = arrivals[source].incoming;
    if (incoming.offered && replies[source].reply >= 0) {
      slot.nodes[replies[source].reply].settled = true;
      incoming.answer();
    } else {
      incoming.release();
    }
    arrivals[source].aside.reset();
    arrivals[source].here = false;
  }
  state.folded += sources;
}

void Engine::end(Operation& operation, int slot_number, int node_number) {
  Slot& slot = operation.slots[slot_number];
  const Plan& plan = *operation.plan;
  const Node& node = plan.nodes[node_number];
  slot.nodes[node_number].ended = true;
  for (int i = 0; i < node.nexts; ++i) {
    const int next = plan.nexts[node.first_next + i];
    if (--slot.nodes[next].waits == 0) ready_.push_back({&operation, slot_number, next});
  }
  if (--slot.nodes_left == 0) retire(operation, slot_number);
}

void Engine::retire(Operation& operation, int slot_number) {
  Slot& slot = operation.slots[slot_number];
  const int next = slot.segment + operation.slots_used;
  slot.segment = -1;
  if (next < operation.segments) activate(operation, slot_number, next);
  if (--operation.segments_left == 0) complete(operation);
}

void Engine::complete(Operation& operation) {
  if (operation.plan->divides_at_end && operation.divisor != 1 && !operation.error) {
    for (const BlockPlace& block : operation.blocks) {
      if (block.elements == 0 || block.work == nullptr) continue;
      std::byte* const work = block.work;
      const std::byte* const source = work;
      kernels::fold(operation.call.op, operation.call.dtype, {&work, 1}, {&source, 1}, block.elements,
                    operation.divisor);
    }
  }
  if (operation.asks_end) operation.ended = Clock::now();
  record(operation, !operation.error);
  // The caller may use the operation again as soon as it is done, or end it.
  for (Ready& ready : ready_) {
    if (ready.operation == &operation) ready.operation = nullptr;
  }
  const auto found =
      std::find_if(active_.begin(), active_.end(), [&](const auto& active) { return active.get() == &operation; });
  if (found != active_.end()) {
    const std::shared_ptr<Operation> kept = std::move(*found);
    active_.erase(found);
    kept->done.store(1, std::memory_order_release);
    kept->done.notify_all();
  } else {
    operation.done.store(1, std::memory_order_release);
    operation.done.notify_all();
  }
  --pending_;
}

}  // namespace trireme
