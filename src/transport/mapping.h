// Mapped memory that is unmapped with its owner, and descriptors that are closed with theirs.
#pragma once

#include <cstddef>
#include <utility>

namespace trireme::transport {

class Mapping {
 public:
  Mapping() = default;

  /// Zeros, private to this process, which take no memory before they are written.
  static Mapping anonymous(std::size_t bytes);

  /// The file from its start, shared with all who map it.
  static Mapping shared(int descriptor, std::size_t bytes);

  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// As much as the machine has: more can't be in use at once.
std::size_t physical_memory();

}  // namespace trireme::transport
