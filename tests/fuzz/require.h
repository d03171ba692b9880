// What has to hold for all bytes.
#pragma once

#include <cstdlib>

inline void require(bool good) {
  if (!good) std::abort();
}
