#include "kernels/fold.h"

#include "kernels/kernels.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace trireme::kernels {
namespace {

void copy_by_vectors(std::byte* to, const std::byte* from, std::size_t bytes) {
  fold_integers({Op::sum, Dtype::u8, {&to, 1}, {&from, 1}, 0, bytes, 1});
}

// With nothing to reduce, the bits stay as they are. A piece at a time, so that it is read from memory only once; pieces
// are copied soonest like this.
void copy_to_all(std::span<std::byte* const> destinations, const std::byte* source, std::size_t bytes) {
  constexpr std::size_t kPiece = 16 << 10;
  for (std::size_t begin = 0; begin < bytes; begin += kPiece) {
    const std::size_t end = std::min(bytes, begin + kPiece);
    for (std::byte* const destination : destinations) {
      if (destination != source) copy_by_vectors(destination + begin, source + begin, end - begin);
    }
  }
}

bool is_bitwise(Op op) { return op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor; }

bool is_arithmetic(Op op) { return op == Op::sum || op == Op::average || op == Op::product; }

void run(const Fold& fold) {
  switch (fold.dtype) {
    case Dtype::f32:
    case Dtype::f64: return fold_floats(fold);
    case Dtype::f16:
    case Dtype::bf16: return fold_halves(fold);
    case Dtype::i8:
    case Dtype::u8:
    case Dtype::i32:
    case Dtype::i64: return fold_integers(fold);
  }
}

}  // namespace

void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  // The C library leaves longer ones to the processor's own way of copying. That is the fastest, but on Zen 3 and later,
  // where the destination lies up to 31 bytes further into a page than the source, 16 times slower than any other, and
  // up to 63 bytes, twice.
  constexpr std::size_t kShort = 2048, kPage = 4096, kLittle = 64;
  const std::size_t further = (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
  if (bytes >= kShort && further > 0 && further < kLittle) {
    copy_by_vectors(to, from, bytes);
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

void fold(Op op, Dtype dtype, std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
          std::size_t elements, int divisor) {
  if (destinations.empty()) return;
  if (sources.size() == 1 && divisor == 1) {
    copy_to_all(destinations, sources[0], elements * bytes_of(dtype));
  } else if (divisor != 1 && !is_arithmetic(op)) {
    // Rare enough for a second pass.
    fold(op, dtype, destinations, sources, elements);
    const std::byte* const result = destinations[0];
    run({Op::sum, dtype, destinations, {&result, 1}, 0, elements, divisor});
  } else if (is_bitwise(op)) {
    run({op, Dtype::u8, destinations, sources, 0, elements * bytes_of(dtype), 1});
  } else {
    run({op, dtype, destinations, sources, 0, elements, divisor});
  }
}

}  // namespace trireme::kernels
