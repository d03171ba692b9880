#include "rendezvous/meeting.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <utility>

namespace trireme::rendezvous {

std::string list_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> parts;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - first >= 2) {
      parts.push_back(fmt::format("{} to {}", ranks[first], ranks[last]));
    } else {
      for (std::size_t i = first; i <= last; ++i) parts.push_back(std::to_string(ranks[i]));
    }
    first = last + 1;
  }
  std::string list = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) list += i + 1 == parts.size() ? " and " : ", ";
    list += parts[i];
  }
  return list;
}

std::string Meeting::name(int rank) const { return fmt::format("rank {} ({})", rank, members_[rank].who); }

void Meeting::join(int rank, std::string who) {
  members_[rank].presence = Presence::present;
  members_[rank].who = std::move(who);
  --awaited_;
  ++present_;
}

void Meeting::give(int rank, std::string blob) {
  Member& member = members_[rank];
  if (member.given) throw ProtocolError(fmt::format("it sent twice in exchange {}", exchange_));
  member.given = true;
  member.blob = std::move(blob);
  ++given_;
  fail_if_hopeless();
}

std::optional<std::string> Meeting::take_all() {
  if (given_ < ranks() || failure_) return std::nullopt;
  std::size_t body_bytes = sizeof(std::uint32_t) * 2 + sizeof(std::uint64_t) * members_.size();
  for (const Member& member : members_) body_bytes += member.blob.size();
  std::string bytes;
  bytes.reserve(kHeaderBytes + body_bytes);
  append_header(bytes, Kind::blobs, body_bytes);
  append_u32(bytes, exchange_);
  append_u32(bytes, static_cast<std::uint32_t>(ranks()));
  for (const Member& member : members_) append_u64(bytes, member.blob.size());
  for (Member& member : members_) {
    bytes += member.blob;
    member.blob = {};
    member.given = false;
  }
  given_ = 0;
  ++exchange_;
  return bytes;
}

void Meeting::leave(int rank) {
  go(rank);
  fail_if_hopeless();
}

void Meeting::lose(int rank, const std::string& how) {
  go(rank);
  fail({Failure::Type::peer, fmt::format("{} {}", name(rank), how)}, {rank});
}

void Meeting::give_up(int rank, const Failure& failure) {
  fail({failure.type, fmt::format("{} gave up: {}", name(rank), failure.text)}, waited_for());
}

void Meeting::fail(Failure failure, std::vector<int> culprits) {
  if (failure_) return;
  failure_ = std::move(failure);
  culprits_ = std::move(culprits);
}

Meeting::Absent Meeting::absent() const {
  Absent absent;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (members_[rank].presence == Presence::awaited) absent.awaited.push_back(rank);
    if (members_[rank].presence == Presence::present && !members_[rank].given) absent.idle.push_back(rank);
  }
  return absent;
}

std::vector<int> Meeting::waited_for() const {
  auto [awaited, idle] = absent();
  return awaited.empty() ? idle : awaited;
}

std::string Meeting::missing() const {
  const auto [awaited, idle] = absent();
  std::string text;
  if (!awaited.empty()) text = fmt::format("{} {} not come", list_ranks(awaited), awaited.size() == 1 ? "has" : "have");
  if (!idle.empty()) {
    if (!text.empty()) text += "; ";
    text += idle.size() == 1 ? fmt::format("{} has", name(idle[0])) : fmt::format("{} have", list_ranks(idle));
    text += fmt::format(" come, but not to exchange {}", exchange_);
  }
  return text.empty() ? "nobody is missing any more" : text;
}

void Meeting::go(int rank) {
  members_[rank].presence = Presence::gone;
  --present_;
}

void Meeting::fail_if_hopeless() {
  const bool all_there = awaited_ + present_ == ranks();
  if (given_ == 0 || all_there || failure_) return;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (members_[rank].presence != Presence::gone || members_[rank].given) continue;
    fail({Failure::Type::peer, fmt::format("{} left before exchange {} of the rendezvous, in which others wait for it: "
                                           "its own lines say why",
                                           name(rank), exchange_)},
         {rank});
    return;
  }
}

}  // namespace trireme::rendezvous
