#include "transport/arena.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <iterator>

namespace trireme::transport {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kKept = std::size_t{4} << 20;  // below this, memory stays for whoever comes next

}  // namespace

Arena::Arena(std::byte* base, std::size_t bytes, int descriptor, std::size_t file_offset)
    : base_(base), bytes_(bytes), descriptor_(descriptor), file_offset_(file_offset) {
  if (bytes > 0) free_[0] = bytes;
}

std::byte* Arena::take(std::size_t bytes) { return take(bytes, nullptr); }

std::byte* Arena::take_zeros(std::size_t bytes) {
  std::size_t used = 0;
  std::byte* start = take(bytes, &used);
  if (used > 0) std::memset(start, 0, used);
  return start;
}

std::byte* Arena::take(std::size_t bytes, std::size_t* used) {
  // Whole pages, and room between stretches, so that neighbours never share a line.
  const std::size_t size = std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
  if (size < bytes) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& entry) { return entry.second >= size; });
  if (found == free_.end()) return nullptr;
  const auto [start, length] = *found;
  free_.erase(found);
  if (length > size) free_[start + size] = length - size;
  taken_[start] = size;
  if (used != nullptr) *used = std::min(size, std::max(fresh_, start) - start);
  fresh_ = std::max(fresh_, start + size);
  return base_ + start;
}

void Arena::give_back(std::byte* start) {
  const std::lock_guard lock(mutex_);
  const auto taken = taken_.find(static_cast<std::size_t>(start - base_));
  if (taken == taken_.end()) return;
  std::size_t begin = taken->first;
  std::size_t size = taken->second;
  taken_.erase(taken);
#ifdef FALLOC_FL_PUNCH_HOLE
  if (descriptor_ >= 0 && size >= kKept) {
    ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(file_offset_ + begin),
                static_cast<off_t>(size));
  }
#endif
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (after != free_.end() && begin + size == after->first) {
    size += after->second;
    free_.erase(after);
  }
  free_[begin] = size;
}

}  // namespace trireme::transport
