// Folds of f32 and f64.
#include "kernels/fold.h"

#include <cstddef>

// Highway includes this file again for each instruction set, and the order matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fold_floats.cpp"
#include <hwy/foreach_target.h>
#include "kernels/float_operations-inl.h"
#include "kernels/fold_loop-inl.h"
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

template <typename T>
struct Floats {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  using V = hn::Vec<Tag>;

  static HWY_INLINE void load(const T* from, V& a0, V& a1, V& a2, V& a3) { load_four(Tag(), from, a0, a1, a2, a3); }
  static HWY_INLINE void store(V a0, V a1, V a2, V a3, T* to) { store_four(Tag(), a0, a1, a2, a3, to); }
  static HWY_INLINE V round(V a) { return a; }
  static HWY_INLINE void divide(V& a0, V& a1, V& a2, V& a3, int divisor) {
    const V by = hn::Set(Tag(), static_cast<T>(divisor));
    a0 = hn::Div(a0, by);
    a1 = hn::Div(a1, by);
    a2 = hn::Div(a2, by);
    a3 = hn::Div(a3, by);
  }
  static HWY_INLINE V settle(V a) { return settle_float(a); }
};

template <typename T>
void run_floats_of(const Fold& fold) {
  switch (fold.op) {
    case Op::min: return fold_blocks<Floats<T>, FloatMin>(fold);
    case Op::max: return fold_blocks<Floats<T>, FloatMax>(fold);
    case Op::product: return fold_blocks<Floats<T>, FloatProduct>(fold);
    default: return fold_blocks<Floats<T>, Sum>(fold);
  }
}

void run_floats(const Fold& fold) {
  if (fold.dtype == Dtype::f32) {
    run_floats_of<float>(fold);
  } else {
    run_floats_of<double>(fold);
  }
}

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels {

HWY_EXPORT(run_floats);

void fold_floats(const Fold& fold) { HWY_DYNAMIC_DISPATCH(run_floats)(fold); }

}  // namespace trireme::kernels
#endif
