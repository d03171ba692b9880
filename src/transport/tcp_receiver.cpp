#include "transport/tcp_receiver.h"

#include "kernels/kernels.h"
#include "transport/socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sys/uio.h>
#include <utility>

namespace trireme::transport {

namespace {

// Of one call to receive(), while the kernel has as much as is asked for.
constexpr int kMostReads = 4;

}  // namespace

TcpReceiver::~TcpReceiver() {
  if (buffer_ != nullptr) buffers_.give_back(buffer_);
}

TcpReceiver::Result TcpReceiver::receive(const TcpStream& stream, Inbox& inbox) {
  Result result = Result::nothing;
  for (int reads = 0; reads < kMostReads || stream.unread(); ++reads) {
    std::size_t asked = 0;
    const ssize_t bytes = read(stream, asked);
    if (bytes < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return result;
      return break_off(errno == EBADMSG ? Result::garbled : Result::broken, reason(errno));
    }
    if (bytes == 0) return break_off(Result::broken, how_it_ended());
    fill_places(bytes);
    result = take_apart(inbox);
    // A short read has emptied the socket: to ask again would most likely be in vain.
    if (result != Result::some || static_cast<std::size_t>(bytes) < asked) return result;
  }
  return result;
}

std::string TcpReceiver::how_it_ended() const {
  const std::string end = "closed the connection without saying goodbye";
  if (!in_message_) return ahead_end_ == 0 ? end : end + ", in the middle of a header";
  const std::size_t filler = beyond_ > 0 ? 0 : header_.tail;
  if (missing_ + beyond_ <= filler) return end + ", behind a message";
  const std::size_t missing = std::min<std::size_t>(missing_ + beyond_ - filler, header_.bytes);
  return fmt::format("{}, with {} of a message's {} bytes still to come", end, missing, header_.bytes);
}

// One call for the rest of the present message and what comes behind it.
ssize_t TcpReceiver::read(const TcpStream& stream, std::size_t& asked) {
  if (ahead_begin_ > 0) {
    std::memmove(ahead_.get(), ahead_.get() + ahead_begin_, ahead_end_ - ahead_begin_);
    ahead_end_ -= std::exchange(ahead_begin_, 0);
  }
  std::byte* const ahead = ahead_.get() + ahead_end_;
  const std::size_t room = beyond_ > 0 ? 0 : (header_.bytes <= kSmall ? kAhead : kHeaderAhead) - ahead_end_;
  asked = missing_ + room;
  std::array<iovec, std::tuple_size_v<decltype(places_.pieces)> + 1> parts;
  std::size_t count = 0;
  for (std::size_t i = places_.first; missing_ > 0 && i < places_.count; ++i) {
    parts[count++] = {.iov_base = places_.pieces[i].data, .iov_len = places_.pieces[i].bytes};
  }
  parts[count++] = {.iov_base = ahead, .iov_len = room};
  return stream.receive(std::span(parts).first(count));
}

// So many bytes have come: those at the front have already been written to their places.
void TcpReceiver::fill_places(std::size_t bytes) {
  const std::size_t placed = std::min(bytes, missing_);
  missing_ -= placed;
  ahead_end_ += bytes - placed;
  for (std::size_t left = placed; left > 0;) {
    Piece& piece = places_.pieces[places_.first];
    const std::size_t here = std::min(left, piece.bytes);
    piece.data += here;
    piece.bytes -= here;
    left -= here;
    if (piece.bytes == 0) ++places_.first;
  }
}

void TcpReceiver::copy_ahead_to_places() {
  while (missing_ > 0 && ahead_begin_ < ahead_end_) {
    Piece& piece = places_.pieces[places_.first];
    const std::size_t here = std::min(piece.bytes, ahead_end_ - ahead_begin_);
    kernels::copy(piece.data, ahead_.get() + ahead_begin_, here);
    ahead_begin_ += here;
    missing_ -= here;
    piece.data += here;
    piece.bytes -= here;
    if (piece.bytes == 0) ++places_.first;
  }
}

TcpReceiver::Result TcpReceiver::take_apart(Inbox& inbox) {
  while (true) {
    if (!in_message_) {
      if (ahead_end_ - ahead_begin_ < sizeof header_) break;
      std::memcpy(&header_, ahead_.get() + ahead_begin_, sizeof header_);
      ahead_begin_ += sizeof header_;
      if (!wire::makes_sense(header_)) {
        return break_off(
            Result::garbled,
            fmt::format("sent bytes that make no sense: a header of kind {:#x} and {} bytes, with {} and {} of filler "
                        "around them",
                        static_cast<std::uint32_t>(header_.kind), header_.bytes, header_.lead, header_.tail));
      }
      if (header_.kind == wire::Kind::goodbye) return Result::goodbye;
      begin_message(inbox);
    }
    copy_ahead_to_places();
    if (missing_ > 0) break;
    beyond_ > 0 ? grow() : end_message(inbox);
  }
  if (ahead_begin_ == ahead_end_) ahead_begin_ = ahead_end_ = 0;
  return Result::some;
}

void TcpReceiver::begin_message(Inbox& inbox) {
  in_message_ = true;
  missing_ = beyond_ = 0;
  places_.count = places_.first = 0;
  expect_filler(header_.lead);
  if (header_.bytes > 0) find_place(inbox);
  if (beyond_ == 0) expect_filler(header_.tail);
}

void TcpReceiver::find_place(Inbox& inbox) {
  const std::span pieces = std::span(places_.pieces).subspan(places_.count, kMostPieces);
  const std::size_t count = inbox.place(peer_, header_.envelope, header_.bytes, pieces);
  if (count == 0) {
    const std::size_t bytes = std::min<std::size_t>(header_.bytes, kFirstBuffer);
    beyond_ = header_.bytes - bytes;
    buffer_ = buffers_.take(bytes, buffer_offset());
    expect({.data = TcpBuffers::data(buffer_), .bytes = bytes});
    return;
  }
  const std::size_t room = total_bytes(pieces.first(count));
  if (room != header_.bytes) {
    throw UsageError(fmt::format("A message of {} bytes was given a place of {}", header_.bytes, room));
  }
  places_.count += count;
  missing_ += room;
}

void TcpReceiver::expect(Piece piece) {
  places_.pieces[places_.count++] = piece;
  missing_ += piece.bytes;
}

void TcpReceiver::expect_filler(std::size_t bytes) {
  if (bytes > 0) expect({.data = filler_.data(), .bytes = bytes});
}

// Where the payload lies in the stream, as far as that suits every type of element.
std::size_t TcpReceiver::buffer_offset() const {
  constexpr std::size_t kLargestElement = 8;
  const std::size_t offset = (sizeof header_ + header_.lead) % wire::kGrain;
  return offset - offset % kLargestElement;
}

// All that has come so far is copied, which for the longest messages comes to a third of them.
void TcpReceiver::grow() {
  const std::size_t full = header_.bytes - beyond_;
  const std::size_t more = std::min(beyond_, (kGrowth - 1) * full);
  TcpBuffers::Buffer* larger = buffers_.take(full + more, buffer_offset());
  beyond_ -= more;
  kernels::copy(TcpBuffers::data(larger), TcpBuffers::data(buffer_), full);
  buffers_.give_back(std::exchange(buffer_, larger));
  places_.count = places_.first = 0;
  expect({.data = TcpBuffers::data(buffer_) + full, .bytes = more});
  if (beyond_ == 0) expect_filler(header_.tail);
}

void TcpReceiver::end_message(Inbox& inbox) {
  in_message_ = false;
  TcpBuffers::Buffer* buffer = std::exchange(buffer_, nullptr);
  Incoming incoming{.bytes = header_.bytes, .placed = buffer == nullptr && header_.bytes > 0};
  static constexpr std::byte kNothing{};
  if (header_.bytes == 0) incoming.data = &kNothing;
  if (buffer != nullptr) {
    incoming.data = TcpBuffers::data(buffer);
    incoming.transport = &owner_;
    incoming.token = std::bit_cast<std::uint64_t>(buffer);
  }
  inbox.arrived(peer_, header_.envelope, incoming);
}

TcpReceiver::Result TcpReceiver::break_off(Result result, std::string why) {
  why_ = std::move(why);
  return result;
}

}  // namespace trireme::transport
