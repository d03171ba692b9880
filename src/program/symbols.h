// Values as the verifier sees them: not numbers, but the additions that made them.
//
// A symbol is one of: nothing defined, one rank's original block, or the sum of two symbols. Sums are kept once each,
// whichever side stands on the left, so that two values have the same bits exactly when their symbols are equal
// (addition of floats commutes, but does not associate).
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace trireme {

using Symbol = std::int32_t;
inline constexpr Symbol kUndefined = -1;

class Symbols {
 public:
  explicit Symbols(int ranks);

  /// The block that `rank` starts with.
  Symbol original(int rank, int block);

  bool is_original(Symbol symbol, int rank, int block) const;

  /// The sum of two defined symbols.
  Symbol sum(Symbol left, Symbol right);

  /// A rank that both contain, or -1.
  int first_shared(Symbol left, Symbol right) const;

  /// A rank among the first `ranks` that the symbol lacks, or -1.
  int first_missing(Symbol symbol, int ranks) const;

  /// The block that all parts of the symbol came from, or kMixed.
  int block(Symbol symbol) const { return block_[symbol]; }
  static constexpr int kMixed = -1;

 private:
  Symbol make(std::uint64_t key, int block);
  const std::uint64_t* parts(Symbol symbol) const { return &parts_[static_cast<std::size_t>(symbol) * words_]; }

  std::size_t words_;  // of one set of ranks
  std::vector<std::uint64_t> parts_;
  std::vector<int> block_;
  std::unordered_map<std::uint64_t, Symbol> known_;
};

}  // namespace trireme
