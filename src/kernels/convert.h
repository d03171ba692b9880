// Conversions among f32, f16 and bf16, and between f32 and f64: compiled once for every vector instruction set.
#pragma once

#include "trireme/dtype.h"

#include <cstddef>

namespace trireme::kernels {

/// The two dtypes differ.
void convert_halves(Dtype to_dtype, std::byte* to, Dtype from_dtype, const std::byte* from, std::size_t elements);

void convert_to_f64(std::byte* to, const std::byte* from, std::size_t elements);  // from f32
void convert_to_f32(std::byte* to, const std::byte* from, std::size_t elements);  // from f64

}  // namespace trireme::kernels
