#include "program/symbols.h"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

constexpr int kWordBits = 64;

}  // namespace

Symbols::Symbols(int ranks, int blocks)
    : blocks_(blocks), originals_(ranks * blocks), words_((ranks + kWordBits - 1) / kWordBits) {}

std::uint64_t Symbols::parts(Symbol symbol, std::size_t word) const {
  if (symbol >= originals_) return parts_of_sum_[static_cast<std::size_t>(symbol - originals_) * words_ + word];
  const auto rank = static_cast<std::size_t>(symbol / blocks_);
  return rank / kWordBits == word ? std::uint64_t{1} << (rank % kWordBits) : 0;
}

Symbol Symbols::sum(Symbol left, Symbol right) {
  const auto [low, high] = std::minmax(left, right);
  const std::uint64_t key = static_cast<std::uint64_t>(low) << 32 | static_cast<std::uint32_t>(high);
  const auto [entry, fresh] = sums_.try_emplace(key, originals_ + static_cast<Symbol>(block_of_sum_.size()));
  if (fresh) {
    block_of_sum_.push_back(block(left) == block(right) ? block(left) : kMixed);
    for (std::size_t word = 0; word < words_; ++word) parts_of_sum_.push_back(parts(left, word) | parts(right, word));
  }
  return entry->second;
}

int Symbols::first_shared(Symbol left, Symbol right) const {
  for (std::size_t word = 0; word < words_; ++word) {
    const std::uint64_t both = parts(left, word) & parts(right, word);
    if (both != 0) return static_cast<int>(word) * kWordBits + std::countr_zero(both);
  }
  return -1;
}

int Symbols::first_missing(Symbol symbol, int ranks) const {
  for (int rank = 0; rank < ranks; ++rank) {
    if ((parts(symbol, rank / kWordBits) >> (rank % kWordBits) & 1) == 0) return rank;
  }
  return -1;
}

}  // namespace trireme
