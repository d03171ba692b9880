// Memory for a message that has to wait, because its own room is needed for others. Small ones are many: theirs is
// kept, and used again.
#pragma once

#include "kernels/kernels.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace trireme {

/// Blocks that are free. For one thread at a time.
class AsidePool {
 public:
  static constexpr std::size_t kBlock = 4096;

  AsidePool() { blocks_.reserve(kMost); }

  std::unique_ptr<std::byte[]> take() {
    if (blocks_.empty()) return std::unique_ptr<std::byte[]>(new std::byte[kBlock]);
    auto block = std::move(blocks_.back());
    blocks_.pop_back();
    return block;
  }

  void give_back(std::unique_ptr<std::byte[]> block) {
    if (blocks_.size() < kMost) blocks_.push_back(std::move(block));
  }

 private:
  static constexpr std::size_t kMost = 256;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

class Aside {
 public:
  Aside() = default;
  Aside(const std::shared_ptr<AsidePool>& pool, const std::byte* data, std::size_t bytes) {
    if (bytes <= AsidePool::kBlock) {
      pool_ = pool;
      block_ = pool->take();
    } else {
      block_.reset(new std::byte[bytes]);
    }
    kernels::copy(block_.get(), data, bytes);
  }
  Aside(Aside&&) = default;
  Aside& operator=(Aside&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_, other.block_);
    return *this;
  }
  ~Aside() { reset(); }

  explicit operator bool() const { return block_ != nullptr; }
  const std::byte* data() const { return block_.get(); }

  void reset() {
    if (pool_) pool_->give_back(std::move(block_));
    pool_.reset();
    block_.reset();
  }

 private:
  std::shared_ptr<AsidePool> pool_;  ///< where it goes, if it is small; it may outlive what it came from
  std::unique_ptr<std::byte[]> block_;
};

}  // namespace trireme
