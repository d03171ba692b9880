#include "transport/faulty.h"

#include <algorithm>
#include <utility>

namespace trireme::transport {

Faulty::Faulty(int ranks, Inbox& inbox, FaultPlan plan)
    : inbox_(inbox), plan_(std::move(plan)), random_(plan_.seed), posted_to_(ranks), waiting_(ranks) {}

std::unique_ptr<Network> Faulty::over(std::unique_ptr<Faulty> faulty, std::unique_ptr<Network> below) {
  faulty->below_ = std::move(below);
  return faulty;
}

std::optional<Fault> Faulty::next_fault(int peer) {
  const int all = posted_++;
  const int to_peer = posted_to_[peer]++;
  const auto due = std::ranges::find_if(plan_.faults, [&](const Fault& fault) {
    return fault.peer < 0 ? fault.after <= all : fault.peer == peer && fault.after <= to_peer;
  });
  if (due != plan_.faults.end()) {
    const Fault fault = *due;
    if (--due->times <= 0) plan_.faults.erase(due);
    return fault;
  }
  if (plan_.delay_one_in == 0 || random_() % static_cast<unsigned>(plan_.delay_one_in) != 0) return std::nullopt;
  const auto most = static_cast<std::uint64_t>(plan_.longest_delay.count());
  return Fault{.kind = Fault::Kind::delay, .time = std::chrono::microseconds(random_() % (most + 1))};
}

void Faulty::post(Outgoing& outgoing) {
  if (dying_ || dead_) return;
  const std::optional<Fault> fault = next_fault(outgoing.peer);
  auto& waiting = waiting_[outgoing.peer];
  const bool delayed = fault && fault->kind == Fault::Kind::delay;
  if (!delayed && waiting.empty()) return send(outgoing, fault);
  const auto delay = delayed ? fault->time : std::chrono::microseconds(0);
  waiting.push_back({&outgoing, delayed ? std::nullopt : fault, Clock::now() + delay});
}

void Faulty::send(Outgoing& outgoing, const std::optional<Fault>& fault) {
  if (!fault) return below_->post(outgoing);
  switch (fault->kind) {
    case Fault::Kind::drop: dropped_.push_back(&outgoing); break;
    case Fault::Kind::kill: dying_ = true; break;  // Not now: the transport below may be at work.
    default: forge(outgoing, *fault);
  }
}

void Faulty::forge(Outgoing& outgoing, const Fault& fault) {
  Forged& forged = *forged_.emplace_back(std::make_unique<Forged>());
  if (fault.kind != Fault::Kind::repeat) forged.original = &outgoing;
  for (const Piece& piece : outgoing.pieces)
    forged.bytes.insert(forged.bytes.end(), piece.data, piece.data + piece.bytes);
  forged.outgoing = {.peer = outgoing.peer, .sending = Sending::copied, .envelope = outgoing.envelope, .pieces = {}};
  if (fault.kind == Fault::Kind::truncate) forged.bytes.resize(forged.bytes.size() / 2);
  if (fault.kind == Fault::Kind::corrupt && fault.context == 0) forged.outgoing.envelope.index ^= 0x80000000;
  if (fault.kind == Fault::Kind::corrupt && fault.context != 0) forged.outgoing.envelope.context = fault.context;
  forged.piece = {forged.bytes.data(), forged.bytes.size()};
  forged.outgoing.pieces = {&forged.piece, 1};
  below_->post(forged.outgoing);
  if (fault.kind == Fault::Kind::repeat) below_->post(outgoing);
}

bool Faulty::progress() {
  const bool did = do_what_is_due();
  return (!dead_ && below_->progress()) || did;
}

bool Faulty::wait(std::chrono::milliseconds most) {
  if (do_what_is_due() || dead_) return true;
  for (const auto& waiting : waiting_) {
    if (waiting.empty()) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(waiting.front().until - Clock::now());
    most = std::clamp(left, std::chrono::milliseconds(0), most);
  }
  return below_->wait(most);
}

bool Faulty::do_what_is_due() {
  bool did = false;
  const auto now = Clock::now();
  for (auto& waiting : waiting_) {
    while (!waiting.empty() && waiting.front().until <= now && !dying_ && !dead_) {
      const Waiting next = waiting.front();
      waiting.pop_front();
      send(*next.outgoing, next.fault);
      did = true;
    }
  }
  for (Outgoing* outgoing : std::exchange(dropped_, {})) {
    inbox_.sent(*outgoing, false);
    did = true;
  }
  if (dying_ && !dead_) {
    die();
    did = true;
  }
  return did;
}

void Faulty::die() {
  dead_ = true;
  below_->cut();
  for (auto& waiting : waiting_) waiting.clear();
  for (int peer = 0; peer < static_cast<int>(waiting_.size()); ++peer)
    inbox_.lost(peer, "this rank's connections were cut");
}

void Faulty::close_within(std::chrono::milliseconds patience) {
  for (auto& waiting : waiting_) {
    for (const Waiting& each : std::exchange(waiting, {})) {
      if (!dying_ && !dead_) send(*each.outgoing, each.fault);
    }
  }
  below_->close_within(patience);
}

// Messages name the transport below as theirs.
void Faulty::release(Incoming& /*incoming*/) { throw UsageError("A faulty transport brings no messages of its own"); }
void Faulty::answer(Incoming& /*incoming*/) { throw UsageError("A faulty transport brings no messages of its own"); }

std::size_t Faulty::place(int peer, const Envelope& envelope, std::size_t bytes, std::span<Piece> pieces) {
  return inbox_.place(peer, envelope, bytes, pieces);
}

void Faulty::arrived(int peer, const Envelope& envelope, const Incoming& incoming) {
  inbox_.arrived(peer, envelope, incoming);
}

void Faulty::sent(Outgoing& outgoing, bool answered) {
  const auto found = std::ranges::find_if(forged_, [&](const auto& each) { return &each->outgoing == &outgoing; });
  if (found == forged_.end()) return inbox_.sent(outgoing, answered);
  Outgoing* const original = (*found)->original;
  forged_.erase(found);
  if (original != nullptr) inbox_.sent(*original, false);
}

void Faulty::lost(int peer, const std::string& why) { inbox_.lost(peer, why); }
void Faulty::garbled(int peer, const std::string& why) { inbox_.garbled(peer, why); }
void Faulty::closed(int peer) { inbox_.closed(peer); }
void Faulty::crowded(int peer) { inbox_.crowded(peer); }

}  // namespace trireme::transport
