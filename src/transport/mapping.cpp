#include "transport/mapping.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace trireme::transport {
namespace {

std::byte* map(std::size_t bytes, int flags, int descriptor) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, descriptor, 0);
  if (data == MAP_FAILED) {
    throw SystemError(fmt::format("could not map {} bytes of address space ({}); does a limit (ulimit -v) forbid it?",
                                  bytes, std::strerror(errno)));
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

Mapping Mapping::anonymous(std::size_t bytes) {
  Mapping mapping;
  mapping.data_ = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  mapping.bytes_ = bytes;
  return mapping;
}

Mapping Mapping::shared(int descriptor, std::size_t bytes) {
  Mapping mapping;
  mapping.data_ = map(bytes, MAP_SHARED, descriptor);
  mapping.bytes_ = bytes;
  return mapping;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::size_t arena_bytes(int ranks) {
  constexpr std::size_t kAddresses = std::size_t{1} << 46;  // half of what a process has on x86-64
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t most = kAddresses / static_cast<std::size_t>(ranks) / page * page;
  return std::min(most, static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page);
}

}  // namespace trireme::transport
