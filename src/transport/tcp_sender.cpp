#include "transport/tcp_sender.h"

#include <algorithm>
#include <cerrno>
#include <sys/uio.h>

namespace trireme::transport {

namespace {

std::size_t whole_bytes(const Outgoing& outgoing) { return sizeof(wire::Header) + total_bytes(outgoing.pieces); }

}  // namespace

// What one call hands over: many small messages, or a part of a large one.
class TcpSender::Gather {
 public:
  void add(const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    parts_[count_++] = {.iov_base = const_cast<void*>(data), .iov_len = bytes};
    bytes_ += bytes;
  }

  // The rest of a message; false if not all of it fitted in.
  bool add(const Outgoing& outgoing) {
    if (headers_used_ == headers_.size() || count_ == parts_.size()) return false;
    std::size_t done = outgoing.done;
    if (done < sizeof(wire::Header)) {
      wire::Header& header = headers_[headers_used_++];
      header = {.bytes = total_bytes(outgoing.pieces), .envelope = outgoing.envelope};
      add(reinterpret_cast<const std::byte*>(&header) + done, sizeof header - done);
      done = 0;
    } else {
      done -= sizeof(wire::Header);
    }
    for (const Piece& piece : outgoing.pieces) {
      if (done >= piece.bytes) {
        done -= piece.bytes;
        continue;
      }
      if (count_ == parts_.size()) return false;
      add(piece.data + done, piece.bytes - done);
      done = 0;
    }
    return bytes_ < kEnough;
  }

  std::size_t bytes() const { return bytes_; }

  // How many bytes the kernel took; -1: errno says why none.
  ssize_t send(const TcpStream& stream) { return stream.send(std::span(parts_).first(count_)); }

 private:
  static constexpr std::size_t kEnough = 1 << 20;

  std::array<iovec, 64> parts_;
  std::array<wire::Header, 16> headers_;
  std::size_t count_ = 0;
  std::size_t headers_used_ = 0;
  std::size_t bytes_ = 0;
};

TcpSender::Result TcpSender::send_record(const TcpStream& stream) {
  if (!record_pending()) return Result::all;
  Gather gather;
  gather.add(record_.data() + record_done_, record_bytes_ - record_done_);
  const ssize_t sent = gather.send(stream);
  if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Result::some : Result::none;
  record_done_ += sent;
  return record_pending() ? Result::some : Result::all;
}

TcpSender::Result TcpSender::send(const TcpStream& stream, OutgoingList& sent) {
  while (pending()) {
    Gather gather;
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
    const std::size_t left = whole_bytes(outgoing) - outgoing.done;
    if (bytes < left) {
      outgoing.done += bytes;
      return;
    }
    bytes -= left;
    sent.push(queue_.pop());
  }
}

}  // namespace trireme::transport
