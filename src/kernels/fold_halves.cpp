// Folds of f16 and bf16, in float.
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

// Two elements in each lane of 32 bits: the even ones go to one vector, the odd ones to another, which needs no shuffle.
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

void run_halves(const Fold& fold) {
  if (fold.dtype == Dtype::f16) {
    fold_float_blocks<F16>(fold);
  } else {
    fold_float_blocks<Bf16>(fold);
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
