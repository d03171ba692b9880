// Words to learn: from each three letters, the next one.
#pragma once

#include <cstdint>
#include <string>
#include <torch/types.h>
#include <vector>

namespace makemore {

inline constexpr int kBlock = 3;     ///< letters that the model sees
inline constexpr int kLetters = 27;  ///< '.' before, between and after words, and a to z

/// What Debian's package wamerican installs.
inline constexpr const char* kDictionary = "/usr/share/dict/words";

/// The words of a text file, in its order, in small letters: runs of letters between anything else. Of the dictionary,
/// only lines that are nothing but a to z, so that no names and no "s" of "cat's" are among them. Throws
/// std::runtime_error that says what to do if there are none.
std::vector<std::string> read_words(const std::string& path);

struct Samples {
  torch::Tensor contexts;  ///< [n, kBlock], int64
  torch::Tensor targets;   ///< [n], int64

  std::int64_t size() const { return targets.size(0); }
};

/// Each letter of each word with those before it.
Samples samples_of(const std::vector<std::string>& words);

/// One word in ten is for validation: which, is the same in every process and on every machine.
struct Split {
  Samples training;
  Samples validation;
};
Split split(const std::vector<std::string>& words, std::uint64_t seed = 42);

/// 0 is '.', 1 is 'a'.
char letter(std::int64_t number);

}  // namespace makemore
