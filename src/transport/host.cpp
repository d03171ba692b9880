#include "transport/host.h"

#include "kernels/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <poll.h>
#include <thread>
#include <unistd.h>

namespace trireme::transport {
namespace {

/// A stretch of the sender's memory, as it stands in a record that lists several.
struct Place {
  std::uint64_t offset;
  std::uint64_t bytes;
};

constexpr std::size_t kMostPlaces = kMostPayload / sizeof(Place);
static_assert(kMostPlaces <= std::numeric_limits<decltype(RecordHeader::places)>::max());

/// Below this, a message that may be lent is copied all the same: its peer need not answer then.
constexpr std::size_t kWorthLending = 4096;

/// From here on, an offer of memory that the peer does not see is copied to where it does, and its answer back: less
/// goes from core to core then than with a message for each.
constexpr std::size_t kWorthStaging = 16384;

/// So many of them at once: they take 16 MiB at most.
constexpr int kMostStagedOffers = 64;

/// As much of a message as is fetched before anyone has asked for it.
constexpr std::size_t kFetched = 2048;

}  // namespace

Host::Host(int ranks, std::unique_ptr<HostMemory> memory, Inbox& inbox)
    : memory_(std::move(memory)), inbox_(inbox), visible_(memory_->visible()), index_(ranks, -1) {
  for (const HostPeer& peer : memory_->peers()) {
    index_[peer.rank] = static_cast<int>(peers_.size());
    Peer& added = peers_.emplace_back();
    static_cast<HostPeer&>(added) = peer;
    added.writer = RingWriter(peer.to);
    added.reader = RingReader(peer.from);
  }
}

void Host::post(Outgoing& outgoing) {
  Peer& peer = peers_[index_[outgoing.peer]];
  if (peer.first == nullptr && peer.controls.empty() && try_send(peer, outgoing)) return;
  if (outgoing.urgent && peer.first != nullptr) {
    outgoing.next = peer.first;
    peer.first = &outgoing;
    return;
  }
  outgoing.next = nullptr;
  (peer.first == nullptr ? peer.first : peer.last->next) = &outgoing;
  peer.last = &outgoing;
}

bool Host::lendable(std::span<const Piece> pieces) const {
  if (pieces.empty() || pieces.size() > kMostPlaces) return false;
  for (const Piece& piece : pieces) {
    if (piece.bytes > 0 && !visible_.holds(reinterpret_cast<std::uintptr_t>(piece.data) - visible_.base, piece.bytes)) {
      return false;
    }
  }
  return true;
}

// False if there is no room now; then nothing happened.
bool Host::try_send(Peer& peer, Outgoing& outgoing) {
  const std::size_t bytes = total_bytes(outgoing.pieces);
  const bool offers = outgoing.sending == Sending::offered;
  const bool lends = offers || (outgoing.sending == Sending::lent && bytes >= kWorthLending);
  if (lends && lendable(outgoing.pieces)) {
    return send_places(peer, outgoing, bytes, outgoing.pieces, {.outgoing = &outgoing, .peer = index_[peer.rank]});
  }
  const bool stages_offer = offers && bytes >= kWorthStaging && bytes <= kMostPayload &&
                            outgoing.pieces.size() <= kMostPlaces && staged_offers_ < kMostStagedOffers;
  if (stages_offer || bytes > kMostPayload) {
    std::byte* const staged = memory_->arena().take(bytes);
    if (staged != nullptr) return send_staged(peer, outgoing, staged, stages_offer);
    if (!stages_offer) throw SystemError(fmt::format("there is no room for a message of {} bytes", bytes));
  }
  if (!send_payload(peer, outgoing, bytes)) return false;
  inbox_.sent(outgoing, false);
  return true;
}

// By a copy in memory that the peer sees. If it is offered, the answer is copied back when it comes.
bool Host::send_staged(Peer& peer, Outgoing& outgoing, std::byte* staged, bool offered) {
  staged_.clear();
  std::size_t bytes = 0;
  for (const Piece& piece : outgoing.pieces) {
    kernels::copy(staged + bytes, piece.data, piece.bytes);
    staged_.push_back({staged + bytes, piece.bytes});
    bytes += piece.bytes;
  }
  if (!offered) staged_.assign(1, {staged, bytes});
  const Lent lent{.outgoing = offered ? &outgoing : nullptr, .staged = staged, .peer = index_[peer.rank]};
  if (!send_places(peer, outgoing, bytes, staged_, lent)) {
    memory_->arena().give_back(staged);
    return false;
  }
  if (offered) {
    ++staged_offers_;
  } else {
    inbox_.sent(outgoing, false);
  }
  return true;
}

bool Host::send_payload(Peer& peer, Outgoing& outgoing, std::size_t bytes) {
  std::byte* to = peer.writer.reserve(bytes);
  if (to == nullptr) return false;
  for (const Piece& piece : outgoing.pieces) {
    kernels::copy(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  publish(peer, {.kind = RecordKind::message, .bytes = bytes, .envelope = outgoing.envelope});
  return true;
}

bool Host::send_places(Peer& peer, const Outgoing& outgoing, std::size_t bytes, std::span<const Piece> pieces,
                       Lent lent) {
  const std::size_t places = pieces.size() == 1 ? 0 : pieces.size();
  std::byte* to = peer.writer.reserve(places * sizeof(Place));
  if (to == nullptr) return false;
  if (free_tokens_.empty()) {
    free_tokens_.push_back(static_cast<std::uint32_t>(lent_.size()));
    lent_.emplace_back();
  }
  const std::uint32_t token = free_tokens_.back();
  free_tokens_.pop_back();
  lent_[token] = lent;
  const auto offset_of = [&](const Piece& piece) {
    return reinterpret_cast<std::uintptr_t>(piece.data) - visible_.base;
  };
  for (std::size_t i = 0; i < places; ++i) {
    const Place place{offset_of(pieces[i]), pieces[i].bytes};
    std::memcpy(to, &place, sizeof place);
    to += sizeof place;
  }
  const bool offered = lent.outgoing != nullptr && outgoing.sending == Sending::offered;
  publish(peer, {.kind = offered ? RecordKind::offered : RecordKind::lent,
                 .places = static_cast<std::uint16_t>(places),
                 .token = token,
                 .bytes = bytes,
                 .offset = places == 0 ? offset_of(pieces[0]) : 0,
                 .envelope = outgoing.envelope});
  return true;
}

bool Host::send_control(Peer& peer, const Control& control) {
  if (peer.writer.reserve(0) == nullptr) return false;
  publish(peer, {.kind = control.kind, .token = control.token});
  return true;
}

void Host::publish(Peer& peer, const RecordInfo& info) {
  peer.writer.publish(info);
  woke_ |= peer.bell->ring(peer.event);
}

// True if anything went out.
bool Host::flush(Peer& peer) {
  bool moved = false;
  while (!peer.controls.empty() && send_control(peer, peer.controls.front())) {
    peer.controls.pop_front();
    --owed_;
    moved = true;
  }
  while (peer.controls.empty() && peer.first != nullptr) {
    // Out of the queue before it is sent: once sent it may be posted anew.
    Outgoing& outgoing = *peer.first;
    peer.first = outgoing.next;
    if (!try_send(peer, outgoing)) {
      outgoing.next = peer.first;
      peer.first = &outgoing;
      if (outgoing.next == nullptr) peer.last = &outgoing;
      break;
    }
    moved = true;
  }
  return moved;
}

bool Host::progress() {
  if (closed_) return false;
  bool moved = false;
  for (Peer& peer : peers_) {
    if (peer.first != nullptr || !peer.controls.empty()) moved |= flush(peer);
    moved |= take_in(peer);
  }
  return moved;
}

bool Host::take_in(Peer& peer) {
  if (peer.gone) return false;
  bool moved = false;
  while (const RecordHeader* header = peer.reader.peek()) {
    moved = true;
    switch (header->kind) {
      case RecordKind::message:
      case RecordKind::lent:
      case RecordKind::offered: take_message(peer, *header); break;
      case RecordKind::released:
      case RecordKind::answered: {
        const std::uint32_t token = header->token;
        const bool answered = header->kind == RecordKind::answered;
        peer.reader.pass(0);
        take_back(peer, token, answered);
        break;
      }
      case RecordKind::goodbye:
        peer.reader.pass(0);
        go(peer);
        inbox_.closed(peer.rank);
        break;
      default: garble(peer, "sent a record that makes no sense"); return true;
    }
    if (peer.gone) break;
  }
  if (!moved) return false;
  let_go(peer);
  // Records that hold nothing fill the ring too, behind messages that are held.
  if (peer.reader.crowded()) inbox_.crowded(peer.rank);
  return true;
}

Host::Held& Host::new_held(Peer& peer) {
  if (free_held_.empty()) {
    all_held_.push_back(std::make_unique<Held>());
    free_held_.push_back(all_held_.back().get());
  }
  Held& held = *free_held_.back();
  free_held_.pop_back();
  held.begin = peer.reader.position();
  held.released = false;
  held.lent = false;
  held.peer = index_[peer.rank];
  held.pieces.clear();
  return held;
}

void Host::take_message(Peer& peer, const RecordHeader& record) {
  const RecordInfo header = record;  // looked at once, as its memory is not this rank's
  const bool lent = header.kind != RecordKind::message;
  const std::size_t payload = lent ? header.places * sizeof(Place) : header.bytes;
  if (payload > std::min(kMostPayload, peer.reader.most_payload())) {
    garble(peer, "sent a record that is longer than any");
    return;
  }
  // Its first lines are on their way while it is found out what they are for.
  const std::byte* const start = RingReader::payload(record);
  for (std::size_t line = 0; line < std::min(payload, kFetched); line += kLine) __builtin_prefetch(start + line);
  Held& held = new_held(peer);
  Incoming incoming{.bytes = header.bytes, .transport = this, .token = reinterpret_cast<std::uintptr_t>(&held)};
  if (lent) {
    // Its places are copied, so that the record's room is free for others however long the loan takes.
    if (!take_places(peer, header, start, held)) {
      free_held_.push_back(&held);
      return;
    }
    incoming.lent = held.pieces;
    incoming.offered = header.kind == RecordKind::offered;
  } else {
    peer.held.push_back(&held);
    incoming.data = start;
  }
  peer.reader.pass(payload);
  incoming.scarce = peer.reader.crowded();
  inbox_.arrived(peer.rank, header.envelope, incoming);
}

bool Host::take_places(Peer& peer, const RecordInfo& header, const std::byte* list, Held& held) {
  held.lent = true;
  held.token = header.token;
  const auto add = [&](const Place& place) {
    const bool its_own = place.bytes == 0 || peer.visible.holds(place.offset, place.bytes);
    if (its_own) {
      held.pieces.push_back({std::bit_cast<std::byte*>(peer.visible.base + place.offset), place.bytes});
    } else {
      garble(peer, "lent memory that is not its own");
    }
    return its_own;
  };
  if (header.places == 0) return add({header.offset, header.bytes});
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < header.places; ++i) {
    Place place{};
    std::memcpy(&place, list + i * sizeof place, sizeof place);
    if (!add(place)) return false;
    bytes += place.bytes;
  }
  if (bytes == header.bytes) return true;
  garble(peer, "lent memory of another size than it says");
  return false;
}

void Host::take_back(Peer& peer, std::uint32_t token, bool answered) {
  if (token >= lent_.size() || lent_[token].peer != index_[peer.rank]) {
    garble(peer, "gave back what was not lent to it");
    return;
  }
  const Lent lent = lent_[token];
  lent_[token] = {};
  free_tokens_.push_back(token);
  if (lent.staged != nullptr && lent.outgoing != nullptr) {
    --staged_offers_;
    const std::byte* from = lent.staged;
    for (const Piece& piece : lent.outgoing->pieces) {
      if (answered) kernels::copy(piece.data, from, piece.bytes);
      from += piece.bytes;
    }
  }
  if (lent.staged != nullptr) memory_->arena().give_back(lent.staged);
  if (lent.outgoing != nullptr) inbox_.sent(*lent.outgoing, answered);
}

void Host::finish(Incoming& incoming, RecordKind kind) {
  Held& held = *std::bit_cast<Held*>(incoming.token);
  Peer& peer = peers_[held.peer];
  held.released = true;
  if (!held.lent) {
    let_go(peer);
    return;
  }
  free_held_.push_back(&held);
  if (peer.gone) return;
  const Control control{kind, held.token};
  if (peer.controls.empty() && send_control(peer, control)) return;
  peer.controls.push_back(control);
  ++owed_;
}

// Gives room back up to the oldest record that is still held.
void Host::let_go(Peer& peer) {
  while (peer.held_begin < peer.held.size() && peer.held[peer.held_begin]->released) {
    free_held_.push_back(peer.held[peer.held_begin++]);
  }
  if (peer.held_begin == peer.held.size()) {
    peer.held.clear();
    peer.held_begin = 0;
    if (peer.reader.let_go_until(peer.reader.position())) peer.bell->ring(peer.event);
  } else {
    if (peer.reader.let_go_until(peer.held[peer.held_begin]->begin)) peer.bell->ring(peer.event);
    constexpr std::size_t kMany = 1024;
    if (peer.held_begin >= kMany) {
      peer.held.erase(peer.held.begin(), peer.held.begin() + static_cast<std::ptrdiff_t>(peer.held_begin));
      peer.held_begin = 0;
    }
  }
}

void Host::check_processes() {
  if (closed_) return;
  for (Peer& peer : peers_) {
    if (peer.gone || peer.process < 0) continue;
    pollfd look{.fd = peer.process, .events = POLLIN, .revents = 0};
    if (::poll(&look, 1, 0) != 1) continue;
    // It may have said goodbye, or sent its last message, before it ended.
    take_in(peer);
    if (!peer.gone) lose(peer, "its process has ended");
  }
}

// It is told nothing any more.
void Host::go(Peer& peer) {
  peer.gone = true;
  owed_ -= peer.controls.size();
  peer.controls.clear();
}

void Host::lose(Peer& peer, const std::string& why) {
  if (peer.gone) return;
  go(peer);
  inbox_.lost(peer.rank, why);
}

void Host::garble(Peer& peer, const std::string& why) {
  if (peer.gone) return;
  go(peer);
  inbox_.garbled(peer.rank, why);
}

void Host::close() {
  using Clock = std::chrono::steady_clock;
  constexpr auto kFarewell = std::chrono::seconds(1);
  const auto until = Clock::now() + kFarewell;
  for (Peer& peer : peers_) {
    if (peer.gone) continue;
    // After all that the peer waits for: what it lent is given back. A peer that does not read is not waited for long.
    peer.controls.push_back({RecordKind::goodbye, 0});
    while (!peer.controls.empty()) {
      if (send_control(peer, peer.controls.front())) {
        peer.controls.pop_front();
      } else if (Clock::now() < until) {
        std::this_thread::yield();
      } else {
        break;
      }
    }
    peer.gone = true;
  }
  owed_ = 0;
  closed_ = true;
}

}  // namespace trireme::transport
