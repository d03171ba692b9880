#include "transport/tcp_sender.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <sys/uio.h>

namespace trireme::transport {

namespace {

constexpr std::array<std::byte, wire::kGrain> kFiller{};

// Shorter payloads are copied in no time wherever they lie.
constexpr std::size_t kWorthAligning = 4096;

wire::Header header_of(const Outgoing& outgoing) {
  wire::Header header{.bytes = total_bytes(outgoing.pieces), .envelope = outgoing.envelope};
  if (header.bytes >= kWorthAligning) {
    const auto at = reinterpret_cast<std::uintptr_t>(outgoing.pieces.front().data);
    header.lead = static_cast<std::uint16_t>((at - sizeof header) % wire::kGrain);
  }
  header.tail = static_cast<std::uint16_t>(-(sizeof header + header.lead + header.bytes) % wire::kGrain);
  return header;
}

std::size_t whole_bytes(const wire::Header& header) { return sizeof header + header.lead + header.bytes + header.tail; }

}  // namespace

// What one call hands over: many small messages, or a part of a large one.
class TcpSender::Gather {
 public:
  explicit Gather(std::size_t most) : most_(most) {}

  void add(const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    parts_[count_++] = {.iov_base = const_cast<void*>(data), .iov_len = bytes};
    bytes_ += bytes;
  }

  // The rest of a message; false if not all of it fitted in, or that is enough.
  bool add(const Outgoing& outgoing) {
    if (headers_used_ == headers_.size()) return false;
    const wire::Header& header = headers_[headers_used_++] = header_of(outgoing);
    std::size_t done = outgoing.done;
    const auto add_rest = [&](const void* data, std::size_t bytes) {
      const std::size_t skipped = std::min(done, bytes);
      done -= skipped;
      if (skipped == bytes) return true;
      if (count_ == parts_.size()) return false;
      const std::size_t rest = std::min(bytes - skipped, most_ - bytes_);
      add(static_cast<const std::byte*>(data) + skipped, rest);
      return skipped + rest == bytes;
    };
    if (!add_rest(&header, sizeof header) || !add_rest(kFiller.data(), header.lead)) return false;
    for (const Piece& piece : outgoing.pieces) {
      if (!add_rest(piece.data, piece.bytes)) return false;
    }
    return add_rest(kFiller.data(), header.tail) && bytes_ < kEnough;
  }

  std::size_t bytes() const { return bytes_; }

  // How many bytes the kernel took; -1: errno says why none.
  ssize_t send(const TcpStream& stream) { return stream.send(std::span(parts_).first(count_)); }

 private:
  static constexpr std::size_t kEnough = 1 << 20;

  const std::size_t most_;
  std::array<iovec, 64> parts_;
  std::array<wire::Header, 16> headers_;
  std::size_t count_ = 0;
  std::size_t headers_used_ = 0;
  std::size_t bytes_ = 0;
};

TcpSender::Result TcpSender::send_record(const TcpStream& stream) {
  if (!record_pending()) return Result::all;
  Gather gather(most_at_once_);
  gather.add(record_.data() + record_done_, record_bytes_ - record_done_);
  const ssize_t sent = gather.send(stream);
  if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Result::some : Result::none;
  record_done_ += sent;
  return record_pending() ? Result::some : Result::all;
}

TcpSender::Result TcpSender::send(const TcpStream& stream, OutgoingList& sent) {
  while (pending()) {
    // One that the kernel cut short is made up for.
    Gather gather(most_at_once_ - (busy() ? queue_.first()->done % wire::kGrain : 0));
    gather.add(record_.data() + record_done_, record_bytes_ - record_done_);
    for (const Outgoing* next = queue_.first(); next != nullptr && gather.add(*next);) next = next->next;
    const ssize_t bytes = gather.send(stream);
    if (bytes < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Result::some : Result::none;
    account(bytes, sent);
    if (static_cast<std::size_t>(bytes) < gather.bytes()) return Result::some;
  }
  return Result::all;
}

void TcpSender::account(std::size_t bytes, OutgoingList& sent) {
  const std::size_t of_record = std::min(bytes, record_bytes_ - record_done_);
  record_done_ += of_record;
  bytes -= of_record;
  while (busy()) {
    Outgoing& outgoing = *queue_.first();
    const std::size_t left = whole_bytes(header_of(outgoing)) - outgoing.done;
    if (bytes < left) {
      outgoing.done += bytes;
      return;
    }
    bytes -= left;
    sent.push(queue_.pop());
  }
}

}  // namespace trireme::transport
