#include "transport/tcp_buffers.h"

#include <algorithm>
#include <bit>
#include <new>

namespace trireme::transport {

// Comes before the data, in the same stretch of memory.
struct alignas(64) TcpBuffers::Buffer {
  Buffer* next;
  int power;
};

namespace {

constexpr std::align_val_t kAlignment{alignof(TcpBuffers::Buffer)};

void free_buffer(TcpBuffers::Buffer* buffer) { ::operator delete(buffer, kAlignment); }

}  // namespace

TcpBuffers::~TcpBuffers() {
  for (Buffer* buffer : idle_) {
    while (buffer != nullptr) {
      Buffer* next = buffer->next;
      free_buffer(buffer);
      buffer = next;
    }
  }
}

TcpBuffers::Buffer* TcpBuffers::take(std::size_t bytes) {
  const int power = std::max(kSmallest, static_cast<int>(std::bit_width(bytes - 1)));
  if (Buffer* buffer = idle_[power]; buffer != nullptr) {
    idle_[power] = buffer->next;
    idle_bytes_ -= std::size_t{1} << power;
    return buffer;
  }
  void* memory = ::operator new(sizeof(Buffer) + (std::size_t{1} << power), kAlignment);
  return new (memory) Buffer{.next = nullptr, .power = power};
}

void TcpBuffers::give_back(Buffer* buffer) {
  const std::size_t bytes = std::size_t{1} << buffer->power;
  if (idle_bytes_ + bytes > kMostIdle) return free_buffer(buffer);
  idle_bytes_ += bytes;
  buffer->next = idle_[buffer->power];
  idle_[buffer->power] = buffer;
}

std::byte* TcpBuffers::data(Buffer* buffer) { return reinterpret_cast<std::byte*>(buffer + 1); }

}  // namespace trireme::transport
