// Memory for messages that have no place yet.
//
// Buffers come in powers of two, lie where is asked within a grain, and are kept for the next message, up to a limit.
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

  /// A buffer for at least this many bytes, which begins `offset` bytes behind a multiple of wire::kGrain. A large one
  /// is only set aside: its pages cost nothing until written.
  Buffer* take(std::size_t bytes, std::size_t offset);
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
