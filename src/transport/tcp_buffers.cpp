#include "transport/tcp_buffers.h"

#include "transport/wire.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace trireme::transport {

// Comes before the data, in the same stretch of memory.
struct alignas(64) TcpBuffers::Buffer {
  Buffer* next;
  Buffer* previous;  ///< of those in use
  int power;
  std::size_t offset;
};

namespace {

constexpr std::align_val_t kAlignment{alignof(TcpBuffers::Buffer)};

void free_buffer(TcpBuffers::Buffer* buffer) { ::operator delete(buffer, kAlignment); }

void free_all(TcpBuffers::Buffer* first) {
  while (first != nullptr) free_buffer(std::exchange(first, first->next));
}

}  // namespace

TcpBuffers::~TcpBuffers() {
  for (Buffer* first : idle_) free_all(first);
  free_all(used_);
}

TcpBuffers::Buffer* TcpBuffers::take(std::size_t bytes, std::size_t offset) {
  const int power = std::max(kSmallest, static_cast<int>(std::bit_width(bytes - 1)));
  Buffer* buffer = idle_[power];
  if (buffer != nullptr) {
    idle_[power] = buffer->next;
    idle_bytes_ -= std::size_t{1} << power;
  } else {
    void* memory = ::operator new(sizeof(Buffer) + wire::kGrain + (std::size_t{1} << power), kAlignment);
    buffer = new (memory) Buffer{.next = nullptr, .previous = nullptr, .power = power, .offset = 0};
  }
  buffer->offset = offset;
  buffer->previous = nullptr;
  buffer->next = used_;
  if (used_ != nullptr) used_->previous = buffer;
  used_ = buffer;
  return buffer;
}

void TcpBuffers::give_back(Buffer* buffer) {
  (buffer->previous != nullptr ? buffer->previous->next : used_) = buffer->next;
  if (buffer->next != nullptr) buffer->next->previous = buffer->previous;
  const std::size_t bytes = std::size_t{1} << buffer->power;
  if (idle_bytes_ + bytes > kMostIdle) return free_buffer(buffer);
  idle_bytes_ += bytes;
  buffer->next = idle_[buffer->power];
  idle_[buffer->power] = buffer;
}

std::byte* TcpBuffers::data(Buffer* buffer) { return reinterpret_cast<std::byte*>(buffer + 1) + buffer->offset; }

}  // namespace trireme::transport
