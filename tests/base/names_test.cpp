// Guessing what a mistyped name was meant to be.
#include "trireme/names.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme {
namespace {

const std::vector<std::string> kNames{
    "ring", "tree", "torus", "chain", "halving_doubling", "recursive_doubling", "double_binary_tree"};

TEST(Nearest, ForgivesTypingErrors) {
  const struct {
    std::string_view typed;
    std::string_view meant;
  } cases[] = {
      {"ring", "ring"},                            // nothing wrong
      {"rng", "ring"},                             // left out
      {"riing", "ring"},                           // one too many
      {"rong", "ring"},                            // replaced
      {"rnig", "ring"},                            // swapped
      {"tere", "tree"},                            // swapped
      {"trous", "torus"},                          // swapped
      {"chian", "chain"},                          // swapped
      {"Ring", "ring"},                            // case
      {"halving-doubling", "halving_doubling"},    // another dash
      {"halvingdoubling", "halving_doubling"},     // no dash
      {"recursivedubling", "recursive_doubling"},  // two things
      {"double_binary", "double_binary_tree"},     // begun
      {"halv", "halving_doubling"},                // begun
      {"rec", "recursive_doubling"},               // begun
  };
  for (const auto& [typed, meant] : cases) EXPECT_EQ(nearest(typed, kNames), meant) << typed;
}

TEST(Nearest, CountsASwapAsOneEdit) {
  const std::vector<std::string> names{"abdc", "abxd"};  // a swap of "abcd", a replacement of "abcd"
  EXPECT_EQ(nearest("abcd", names), "abdc");
  const std::vector<std::string> two_edits_first{"abxx", "abdc"};
  EXPECT_EQ(nearest("abcd", two_edits_first), "abdc");
}

TEST(Nearest, SaysNothingWhenNothingIsNear) {
  for (const std::string_view name :
       {"", "x", "xy", "xyz", "quux", "hypercube", "0123456789", "zzzzzzzzzzzzzzzzzzzz"}) {
    EXPECT_EQ(nearest(name, kNames), "") << name;
  }
  EXPECT_EQ(nearest("ring", {}), "");
}

TEST(Nearest, StandsVeryLongNames) {
  const std::string endless(1 << 20, 'r');
  EXPECT_EQ(nearest(endless, kNames), "");
}

}  // namespace
}  // namespace trireme
