// Hands out stretches of one large, sparse range of memory. Threads may share it.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace trireme::transport {

class Arena {
 public:
  /// `descriptor`: of the file that `base` maps from `file_offset` on; what is given back is punched out of it. -1:
  /// none.
  Arena(std::byte* base, std::size_t bytes, int descriptor, std::size_t file_offset);

  /// Page-aligned, filled with zeros or what was there before; null if there is no such stretch left.
  std::byte* take(std::size_t bytes);

  /// The same, filled with zeros.
  std::byte* take_zeros(std::size_t bytes);

  /// The start of a stretch that take() gave. What is small stays in memory, to be taken again.
  void give_back(std::byte* start);

  bool holds(const std::byte* data, std::size_t bytes) const {
    return data >= base_ && bytes <= bytes_ && static_cast<std::size_t>(data - base_) <= bytes_ - bytes;
  }

  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }

 private:
  /// `used`: how many of the bytes may hold something.
  std::byte* take(std::size_t bytes, std::size_t* used);

  std::byte* base_;
  std::size_t bytes_;
  int descriptor_;
  std::size_t file_offset_;
  std::size_t fresh_ = 0;  ///< from here on, nothing was ever taken
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;   ///< start to bytes; neighbours are joined
  std::map<std::size_t, std::size_t> taken_;  ///< start to bytes
};

}  // namespace trireme::transport
