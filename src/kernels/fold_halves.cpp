// Folds of f16 and bf16: sums and products in float, the least and the greatest by their bits.
#include "kernels/fold.h"

#include <cstddef>
#include <cstdint>

// Highway includes this file again for each instruction set, and the order matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fold_halves.cpp"
#include <hwy/foreach_target.h>
#include "kernels/float_operations-inl.h"
#include "kernels/fold_loop-inl.h"
#include "kernels/halves-inl.h"
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

struct Halves {
  using Element = std::uint16_t;
  using Tag = FloatTag;
  using V = FloatVector;

  static HWY_INLINE void divide(V& a0, V& a1, V& a2, V& a3, int divisor) {
    const V by = hn::Set(Tag(), static_cast<float>(divisor));
    a0 = hn::Div(a0, by);
    a1 = hn::Div(a1, by);
    a2 = hn::Div(a2, by);
    a3 = hn::Div(a3, by);
  }
  static HWY_INLINE V settle(V a) { return settle_float(a); }
};

struct F16 : Halves {
  static HWY_INLINE void load(const Element* from, V& a0, V& a1, V& a2, V& a3) {
    HalfBitsVector h0, h1, h2, h3;
    load_four(HalfBitsTag(), from, h0, h1, h2, h3);
    a0 = from_f16(h0);
    a1 = from_f16(h1);
    a2 = from_f16(h2);
    a3 = from_f16(h3);
  }
  static HWY_INLINE void store(V a0, V a1, V a2, V a3, Element* to) {
    store_four(HalfBitsTag(), to_f16(a0), to_f16(a1), to_f16(a2), to_f16(a3), to);
  }
  static HWY_INLINE V round(V a) { return from_f16(to_f16(a)); }
};

// Two elements in each lane of 32 bits: the even ones go to one vector, the odd ones to another, which needs no
// shuffle.
struct Bf16 : Halves {
  static HWY_INLINE void load(const Element* from, V& a0, V& a1, V& a2, V& a3) {
    const auto* pairs = reinterpret_cast<const std::uint32_t*>(from);
    const BitsVector p0 = hn::LoadU(BitsTag(), pairs);
    const BitsVector p1 = hn::LoadU(BitsTag(), pairs + hn::Lanes(BitsTag()));
    a0 = float_of(hn::ShiftLeft<16>(p0));
    a1 = float_of(upper_half(p0));
    a2 = float_of(hn::ShiftLeft<16>(p1));
    a3 = float_of(upper_half(p1));
  }
  static HWY_INLINE void store(V a0, V a1, V a2, V a3, Element* to) {
    auto* pairs = reinterpret_cast<std::uint32_t*>(to);
    hn::StoreU(pair(a0, a1), BitsTag(), pairs);
    hn::StoreU(pair(a2, a3), BitsTag(), pairs + hn::Lanes(BitsTag()));
  }
  static HWY_INLINE V round(V a) { return float_of(upper_half(rounded_to_bf16(a))); }

 private:
  static HWY_INLINE BitsVector upper_half(BitsVector bits) { return hn::And(bits, all(0xFFFF0000)); }
  static HWY_INLINE BitsVector pair(V even, V odd) {
    return hn::Or(hn::ShiftRight<16>(rounded_to_bf16(even)), upper_half(rounded_to_bf16(odd)));
  }
};

// Bits for comparing: as the lower ones of a negative number are turned round, they are ordered as integers are.
// Turning them again gives the number back.
struct HalfBits {
  using Element = std::int16_t;
  using Tag = hn::ScalableTag<std::int16_t>;
  using V = hn::Vec<Tag>;

  static HWY_INLINE void load(const Element* from, V& a0, V& a1, V& a2, V& a3) {
    load_four(Tag(), from, a0, a1, a2, a3);
  }
  static HWY_INLINE void store(V a0, V a1, V a2, V a3, Element* to) { store_four(Tag(), a0, a1, a2, a3, to); }
  static HWY_INLINE V settle(V a) { return a; }

  static HWY_INLINE V turned(V a) { return hn::Xor(a, hn::And(hn::ShiftRight<15>(a), all(0x7FFF))); }
  static HWY_INLINE V all(std::int16_t bits) { return hn::Set(Tag(), bits); }
};

// Whatever is not a number comes before all numbers, or after them.
template <std::int16_t kInfinity, std::int16_t kNan, std::int16_t kPlaceOfNan>
struct HalfOrder : Selection {
  using V = HalfBits::V;

  static HWY_INLINE V enter(V a) {
    const auto is_nan = hn::Gt(hn::And(a, HalfBits::all(0x7FFF)), HalfBits::all(kInfinity));
    return hn::IfThenElse(is_nan, HalfBits::all(kPlaceOfNan), HalfBits::turned(a));
  }
  static HWY_INLINE V leave(V a) {
    const auto is_nan = hn::Eq(a, HalfBits::all(kPlaceOfNan));
    return hn::IfThenElse(is_nan, HalfBits::all(kNan), HalfBits::turned(a));
  }
};

template <std::int16_t kInfinity, std::int16_t kNan>
struct HalfMin : HalfOrder<kInfinity, kNan, -0x8000> {
  static HWY_INLINE HalfBits::V apply(HalfBits::V a, HalfBits::V b) { return hn::Min(a, b); }
};

template <std::int16_t kInfinity, std::int16_t kNan>
struct HalfMax : HalfOrder<kInfinity, kNan, 0x7FFF> {
  static HWY_INLINE HalfBits::V apply(HalfBits::V a, HalfBits::V b) { return hn::Max(a, b); }
};

template <class Format, std::int16_t kInfinity, std::int16_t kNan>
void run_halves_of(const Fold& fold) {
  switch (fold.op) {
    case Op::min: return fold_blocks<HalfBits, HalfMin<kInfinity, kNan>>(fold);
    case Op::max: return fold_blocks<HalfBits, HalfMax<kInfinity, kNan>>(fold);
    case Op::product: return fold_blocks<Format, FloatProduct>(fold);
    default: return fold_blocks<Format, Sum>(fold);
  }
}

void run_halves(const Fold& fold) {
  if (fold.dtype == Dtype::f16) {
    run_halves_of<F16, 0x7C00, 0x7E00>(fold);
  } else {
    run_halves_of<Bf16, 0x7F80, 0x7FC0>(fold);
  }
}

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels {

HWY_EXPORT(run_halves);

void fold_halves(const Fold& fold) { HWY_DYNAMIC_DISPATCH(run_halves)(fold); }

}  // namespace trireme::kernels
#endif
