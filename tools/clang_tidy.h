// Included before every file that clang-tidy reads, and by nothing else.
//
// In C++20 all members of libstdc++'s vector are constexpr. Clang 14 then looks into them too early where a class holds
// vectors of itself, as LibTorch's c10::IValue does, and finds it incomplete. With a vector as C++17 has it, it reads
// LibTorch's headers.
#pragma once

#include <string>

#if defined(_GLIBCXX_RELEASE) && _GLIBCXX_RELEASE >= 12 && __clang_major__ == 14
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#define __fill_a1 __fill_bits  // it was declared as constexpr, and can't be defined as anything else
#include <vector>
#undef __fill_a1
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR constexpr
#endif
