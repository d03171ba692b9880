#include "program/symbols.h"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

constexpr int kWordBits = 64;

std::uint64_t key_of_original(int rank, int block) {
  constexpr std::uint64_t kOriginal = std::uint64_t{1} << 63;
  return kOriginal | static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(block);
}

}  // namespace

Symbols::Symbols(int ranks) : words_((ranks + kWordBits - 1) / kWordBits) {}

Symbol Symbols::make(std::uint64_t key, int block) {
  const auto [entry, fresh] = known_.try_emplace(key, static_cast<Symbol>(block_.size()));
  if (fresh) {
    block_.push_back(block);
    parts_.resize(parts_.size() + words_);
  }
  return entry->second;
}

Symbol Symbols::original(int rank, int block) {
  const Symbol symbol = make(key_of_original(rank, block), block);
  parts_[static_cast<std::size_t>(symbol) * words_ + rank / kWordBits] = std::uint64_t{1} << (rank % kWordBits);
  return symbol;
}

bool Symbols::is_original(Symbol symbol, int rank, int block) const {
  const auto entry = known_.find(key_of_original(rank, block));
  return entry != known_.end() && entry->second == symbol;
}

Symbol Symbols::sum(Symbol left, Symbol right) {
  const auto [low, high] = std::minmax(left, right);
  const int block = block_[left] == block_[right] ? block_[left] : kMixed;
  const Symbol symbol = make(static_cast<std::uint64_t>(low) << 32 | static_cast<std::uint32_t>(high), block);
  std::uint64_t* const united = &parts_[static_cast<std::size_t>(symbol) * words_];
  for (std::size_t word = 0; word < words_; ++word) united[word] = parts(left)[word] | parts(right)[word];
  return symbol;
}

int Symbols::first_shared(Symbol left, Symbol right) const {
  for (std::size_t word = 0; word < words_; ++word) {
    const std::uint64_t both = parts(left)[word] & parts(right)[word];
    if (both != 0) return static_cast<int>(word) * kWordBits + std::countr_zero(both);
  }
  return -1;
}

int Symbols::first_missing(Symbol symbol, int ranks) const {
  for (int rank = 0; rank < ranks; ++rank) {
    if ((parts(symbol)[rank / kWordBits] >> (rank % kWordBits) & 1) == 0) return rank;
  }
  return -1;
}

}  // namespace trireme
