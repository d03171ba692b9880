// The incoming way of a connection: takes the byte stream apart into messages.
//
// A payload is read straight into its place, or into a buffer of its own; whatever comes behind it goes to a small
// buffer, so that many small messages need one system call. What lay in that buffer is copied.
#pragma once

#include "transport/tcp_buffers.h"
#include "transport/tcp_stream.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>

namespace trireme::transport {

class TcpReceiver {
 public:
  enum class Result : std::uint8_t {
    nothing,  ///< has come
    some,     ///< and there may be more
    goodbye,  ///< no more will come
    broken,   ///< likewise, and why() says what happened
    garbled,  ///< the same: what came makes no sense
  };

  /// `owner` is who brings the messages; their buffers come from `buffers`.
  TcpReceiver(int peer, Transport& owner, TcpBuffers& buffers) : peer_(peer), owner_(owner), buffers_(buffers) {}
  ~TcpReceiver();
  TcpReceiver(const TcpReceiver&) = delete;
  TcpReceiver& operator=(const TcpReceiver&) = delete;

  /// Reads what is there, up to a limit that keeps it fair to other connections, and gives it to the inbox.
  Result receive(const TcpStream& stream, Inbox& inbox);

  const std::string& why() const { return why_; }

 private:
  // So long a message is read whole, with its header, by one call, and copied. Behind a longer one another long one is
  // expected, of which hardly more than the header is read ahead, so that its payload is not copied; but that much is
  // the whole of a message without payload.
  static constexpr std::size_t kSmall = std::size_t{16} << 10;
  static constexpr std::size_t kHeaderAhead = (sizeof(wire::Header) + wire::kGrain - 1) / wire::kGrain * wire::kGrain;
  static constexpr std::size_t kAhead = kSmall + (std::size_t{4} << 10);

  // A buffer is no longer than this, or than a few times what has come: a header alone makes nobody set memory aside.
  static constexpr std::size_t kFirstBuffer = std::size_t{4} << 20;
  static constexpr std::size_t kGrowth = 4;

  static constexpr std::size_t kMostPieces = 64;

  // Where the rest of the present message goes, and the filler on both sides of it.
  struct Places {
    std::array<Piece, kMostPieces + 2> pieces;
    std::size_t count = 0;
    std::size_t first = 0;  // that is not full
  };

  ssize_t read(const TcpStream& stream, std::size_t& asked);
  Result take_apart(Inbox& inbox);
  void begin_message(Inbox& inbox);
  void find_place(Inbox& inbox);
  void end_message(Inbox& inbox);
  void grow();
  std::size_t buffer_offset() const;
  void expect(Piece piece);
  void expect_filler(std::size_t bytes);
  void fill_places(std::size_t bytes);
  void copy_ahead_to_places();
  std::string how_it_ended() const;
  Result break_off(Result result, std::string why);

  const int peer_;
  Transport& owner_;
  TcpBuffers& buffers_;

  // Bytes that came early: part of a header, or while messages are taken out of it, all of them.
  std::unique_ptr<std::byte[]> ahead_ = std::make_unique_for_overwrite<std::byte[]>(kAhead);
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;

  // The message that is arriving; while some of its payload is missing, no byte is ahead.
  bool in_message_ = false;
  wire::Header header_;
  std::size_t missing_ = 0;  // that there is a place for
  std::size_t beyond_ = 0;   // behind those, once the buffer has grown
  Places places_;
  std::array<std::byte, wire::kGrain> filler_{};
  TcpBuffers::Buffer* buffer_ = nullptr;  // none: it was placed, or is empty

  std::string why_;
};

}  // namespace trireme::transport
