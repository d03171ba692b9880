#include "kernels/convert.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

// Highway includes this file again for each instruction set, and the order matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert_halves.cpp"
#include <hwy/foreach_target.h>
#include "kernels/float_operations-inl.h"
#include "kernels/halves-inl.h"
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

struct AsF32 {
  using Element = float;
  static HWY_INLINE FloatVector load(const Element* from) { return hn::LoadU(FloatTag(), from); }
  static HWY_INLINE void store(FloatVector a, Element* to) { hn::StoreU(a, FloatTag(), to); }
};

struct AsF16 {
  using Element = std::uint16_t;
  static HWY_INLINE FloatVector load(const Element* from) { return from_f16(hn::LoadU(HalfBitsTag(), from)); }
  static HWY_INLINE void store(FloatVector a, Element* to) { hn::StoreU(to_f16(a), HalfBitsTag(), to); }
};

struct AsBf16 {
  using Element = std::uint16_t;
  static HWY_INLINE FloatVector load(const Element* from) {
    return float_of(hn::ShiftLeft<16>(hn::PromoteTo(BitsTag(), hn::LoadU(HalfBitsTag(), from))));
  }
  static HWY_INLINE void store(FloatVector a, Element* to) {
    hn::StoreU(lower_halves(hn::ShiftRight<16>(rounded_to_bf16(a))), HalfBitsTag(), to);
  }
};

// The last elements go through buffers, as in folds.
template <class To, class From>
void convert_vectors(std::byte* to_bytes, const std::byte* from_bytes, std::size_t elements) {
  auto* to = reinterpret_cast<typename To::Element*>(to_bytes);
  const auto* from = reinterpret_cast<const typename From::Element*>(from_bytes);
  const std::size_t lanes = hn::Lanes(FloatTag());
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) To::store(settle_float(From::load(from + i)), to + i);
  if (i == elements) return;

  HWY_ALIGN typename From::Element last_from[hn::MaxLanes(FloatTag())] = {};
  HWY_ALIGN typename To::Element last_to[hn::MaxLanes(FloatTag())];
  std::memcpy(last_from, from + i, (elements - i) * sizeof(*from));
  To::store(settle_float(From::load(last_from)), last_to);
  std::memcpy(to + i, last_to, (elements - i) * sizeof(*to));
}

template <class From>
void convert_from(Dtype to_dtype, std::byte* to, const std::byte* from, std::size_t elements) {
  if (to_dtype == Dtype::f32) return convert_vectors<AsF32, From>(to, from, elements);
  if (to_dtype == Dtype::f16) return convert_vectors<AsF16, From>(to, from, elements);
  convert_vectors<AsBf16, From>(to, from, elements);
}

void run_conversion(Dtype to_dtype, std::byte* to, Dtype from_dtype, const std::byte* from, std::size_t elements) {
  if (from_dtype == Dtype::f32) return convert_from<AsF32>(to_dtype, to, from, elements);
  if (from_dtype == Dtype::f16) return convert_from<AsF16>(to_dtype, to, from, elements);
  convert_from<AsBf16>(to_dtype, to, from, elements);
}

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels {

HWY_EXPORT(run_conversion);

void convert_halves(Dtype to_dtype, std::byte* to, Dtype from_dtype, const std::byte* from, std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(run_conversion)(to_dtype, to, from_dtype, from, elements);
}

}  // namespace trireme::kernels
#endif
