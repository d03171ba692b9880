// What folds and conversions should give, worked out one element at a time. Floats of every width are rounded by the
// same few lines of arithmetic on a wider type, so nothing here shares the kernels' ways with bits.
#pragma once

#include "trireme/dtype.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::test {

/// The bits of an element, in the lowest ones.
using Bits = std::uint64_t;

Bits element(Dtype dtype, const std::byte* memory, std::size_t index);
void put_element(Dtype dtype, std::byte* memory, std::size_t index, Bits bits);

/// A float's value, which is exact.
long double value_of(Dtype dtype, Bits bits);

/// The nearest float of that dtype, ties to even.
Bits nearest_float(Dtype dtype, long double value);

/// The one not-a-number that folds and conversions give.
Bits quiet_nan(Dtype dtype);

Bits reference_fold(Op op, Dtype dtype, std::span<const Bits> sources, int divisor);
Bits reference_convert(Dtype to, Dtype from, Bits bits);

}  // namespace trireme::test
