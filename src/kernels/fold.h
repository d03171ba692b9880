// A fold that is ready to run, and the three files that run one: each compiled once for every vector instruction set.
#pragma once

#include "trireme/dtype.h"

#include <cstddef>
#include <span>

namespace trireme::kernels {

/// Only sums and products have a divisor other than 1, and bitwise operations are on u8.
struct Fold {
  Op op;
  Dtype dtype;
  std::span<std::byte* const> destinations;
  std::span<const std::byte* const> sources;
  std::size_t begin;  ///< elements, as is the next
  std::size_t end;
  int divisor;
};

void fold_floats(const Fold& fold);    // f32, f64
void fold_halves(const Fold& fold);    // f16, bf16
void fold_integers(const Fold& fold);  // i8, u8, i32, i64

}  // namespace trireme::kernels
