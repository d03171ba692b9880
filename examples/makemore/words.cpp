#include "words.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <torch/torch.h>

namespace makemore {
namespace {

bool is_small(char c) { return c >= 'a' && c <= 'z'; }
bool is_large(char c) { return c >= 'A' && c <= 'Z'; }

// A number that depends on the word and the seed alone: FNV-1a, with its bits mixed in the end.
std::uint64_t hash(const std::string& word, std::uint64_t seed) {
  std::uint64_t value = 14695981039346656037ULL ^ seed;
  for (const char c : word) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15ULL;
  return value ^ (value >> 29);
}

void add_line(const std::string& line, std::vector<std::string>& words) {
  std::string word;
  for (const char c : line + ' ') {
    if (is_small(c) || is_large(c)) {
      word += is_small(c) ? c : static_cast<char>(c - 'A' + 'a');
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
}

}  // namespace

std::vector<std::string> read_words(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    const std::string advice = path == kDictionary
                                   ? "install Debian's package wamerican, or name a text file of your own"
                                   : "name a text file that can be read";
    throw std::runtime_error(path + " can't be opened (" + std::strerror(errno) + "): " + advice);
  }
  std::vector<std::string> words;
  for (std::string line; std::getline(file, line);) {
    if (path == kDictionary) {
      if (!line.empty() && std::ranges::all_of(line, is_small)) words.push_back(line);
    } else {
      add_line(line, words);
    }
  }
  if (words.empty()) throw std::runtime_error(path + " has no words of the letters a to z: name another text file");
  return words;
}

Samples samples_of(const std::vector<std::string>& words) {
  std::vector<std::int64_t> contexts, targets;
  for (const std::string& word : words) {
    std::vector<std::int64_t> context(kBlock, 0);
    for (const char c : word + '.') {
      const std::int64_t next = c == '.' ? 0 : c - 'a' + 1;
      contexts.insert(contexts.end(), context.begin(), context.end());
      targets.push_back(next);
      context.erase(context.begin());
      context.push_back(next);
    }
  }
  const auto count = static_cast<std::int64_t>(targets.size());
  return {torch::tensor(contexts, torch::kLong).view({count, kBlock}), torch::tensor(targets, torch::kLong)};
}

Split split(const std::vector<std::string>& words, std::uint64_t seed) {
  std::vector<std::string> training, validation;
  for (const std::string& word : words) (hash(word, seed) % 10 == 0 ? validation : training).push_back(word);
  if (training.empty() || validation.empty()) {
    throw std::runtime_error(std::to_string(words.size()) +
                             " words are too few: none is left for training or for validation; name a longer text");
  }
  return {samples_of(training), samples_of(validation)};
}

char letter(std::int64_t number) { return number == 0 ? '.' : static_cast<char>('a' + number - 1); }

}  // namespace makemore
