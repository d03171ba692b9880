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
  Symbols(int ranks, int blocks);

  /// The block that `rank` starts with.
  Symbol original(int rank, int block) const { return rank * blocks_ + block; }

  /// The sum of two defined symbols.
  Symbol sum(Symbol left, Symbol right);

  /// A rank that both contain, or -1.
  int first_shared(Symbol left, Symbol right) const;

  /// A rank among the first `ranks` that the symbol lacks, or -1.
  int first_missing(Symbol symbol, int ranks) const;

  /// The block that all parts of the symbol came from, or kMixed.
  int block(Symbol symbol) const { return symbol < originals_ ? symbol % blocks_ : block_of_sum_[symbol - originals_]; }
  static constexpr int kMixed = -1;

 private:
  // Which of 64 ranks are in the symbol.
  std::uint64_t parts(Symbol symbol, std::size_t word) const;

  int blocks_;
  Symbol originals_;   // numbers below it are originals, those from it on are sums
  std::size_t words_;  // of one set of ranks
  std::vector<std::uint64_t> parts_of_sum_;
  std::vector<int> block_of_sum_;
  std::unordered_map<std::uint64_t, Symbol> sums_;  // by the two symbols that are added
};

}  // namespace trireme
