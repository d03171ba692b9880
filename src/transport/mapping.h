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

/// For the windows of one of so many ranks of a host, all of which map it: as much as the machine has, since more can't
/// be in use at once, unless their addresses would not suffice for that.
std::size_t arena_bytes(int ranks);

}  // namespace trireme::transport
