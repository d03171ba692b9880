// Conversions among f32, f16 and bf16: compiled once for every vector instruction set.
#pragma once

#include "trireme/dtype.h"

#include <cstddef>

namespace trireme::kernels {

/// The two dtypes differ.
void convert_halves(Dtype to_dtype, std::byte* to, Dtype from_dtype, const std::byte* from, std::size_t elements);

}  // namespace trireme::kernels
