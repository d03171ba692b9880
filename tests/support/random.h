// Random numbers that are the same in every run and on every machine, and how much work tests should do with them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace trireme::test {

// A sanitizer makes everything about ten times slower; what it looks for shows in fewer tries too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int kEffort = 1;
#else
inline constexpr int kEffort = 10;
#endif

/// Mixes a seed and a few numbers into 64 random bits.
template <typename... Numbers>
std::uint64_t mix(std::uint64_t seed, Numbers... numbers) {
  const auto step = [&seed](std::uint64_t number) {  // splitmix64
    seed += 0x9e3779b97f4a7c15ULL + number;
    seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9ULL;
    seed = (seed ^ seed >> 27) * 0x94d049bb133111ebULL;
    seed ^= seed >> 31;
  };
  step(0);
  (step(static_cast<std::uint64_t>(numbers)), ...);
  return seed;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// One of 0, ..., count - 1.
  int below(int count) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(count)); }

  /// One of least, ..., most.
  int between(int least, int most) { return least + below(most - least + 1); }

  bool chance(int one_in) { return below(one_in) == 0; }

  template <typename T>
  const T& pick(const std::vector<T>& choices) {
    return choices[below(static_cast<int>(choices.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace trireme::test
