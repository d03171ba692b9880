// Typed loops over memory, the only place that knows what elements are. Vectorised with Highway for what the processor
// has. No function here allocates, throws or takes a lock.
#pragma once

#include "trireme/dtype.h"

#include <cstddef>
#include <span>

namespace trireme::kernels {

/// Reduces `sources` from left to right, ((s0 op s1) op s2) ..., element by element in one pass, divides the result by
/// `divisor` if that is not 1, and stores it to every one of `destinations`. The result has the same bits however many
/// sources are given at once: fold(a, b, c) is fold(fold(a, b), c), so f16 and bf16 are rounded after each operation.
///
/// Its bits do not depend on the processor either: of two zeros min takes the negative one and max the other, and
/// whatever is not a number becomes the same quiet one. A single source that is not divided is copied as it is.
///
/// A destination may be a source (the same address), and otherwise overlaps nothing. Memory is aligned to elements
/// only. Op::average folds as Op::sum does; who wants the average gives a divisor, which is at least 1. Integers wrap,
/// and are cut towards zero when divided. There is at least one source.
void fold(Op op, Dtype dtype, std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
          std::size_t elements, int divisor = 1);

/// Copies bytes to memory that does not overlap: memcpy, but for places where some processors are slow at it.
void copy(std::byte* to, const std::byte* from, std::size_t bytes);

/// Each element to another dtype: to a narrower float it rounds to the nearest, ties to even; from float to integer it
/// is cut towards zero, kept within the integer's limits, and not a number gives 0; nor does a wider integer leave
/// them. `to` and `from` do not overlap.
void convert(Dtype to_dtype, std::byte* to, Dtype from_dtype, const std::byte* from, std::size_t elements);

}  // namespace trireme::kernels
