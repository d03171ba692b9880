// Memory for messages that have no place yet.
//
// Buffers come in powers of two, lie at a multiple of 64 bytes, and are kept for the next message, up to a limit.
// What nobody gave back, as after a failure, ends with this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trireme::transport {

class TcpBuffers {
 public:
  struct Buffer;

  TcpBuffers() = default;
  ~TcpBuffers();
  TcpBuffers(const TcpBuffers&) = delete;
  TcpBuffers& operator=(const TcpBuffers&) = delete;

  /// A buffer for at least this many bytes. A large one is only set aside: its pages cost nothing until written.
  Buffer* take(std::size_t bytes);
  void give_back(Buffer* buffer);

  static std::byte* data(Buffer* buffer);

 private:
  static constexpr int kSmallest = 8;                              // as a power of two
  static constexpr std::size_t kMostIdle = std::size_t{64} << 20;  // bytes

  std::array<Buffer*, 32> idle_{};  // by power of two
  Buffer* used_ = nullptr;
  std::size_t idle_bytes_ = 0;
};

}  // namespace trireme::transport
