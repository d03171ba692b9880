// Operations on vectors of floats, whose bits depend neither on the instruction set nor on which operand comes first:
// of two zeros the negative one is the less, and one not-a-number makes the result one. Which one, instruction sets do
// not agree on: settle() makes them all the same.
#if defined(TRIREME_KERNELS_FLOAT_OPERATIONS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_KERNELS_FLOAT_OPERATIONS_INL_H
#undef TRIREME_KERNELS_FLOAT_OPERATIONS_INL_H
#else
#define TRIREME_KERNELS_FLOAT_OPERATIONS_INL_H
#endif

#include "kernels/fold_loop-inl.h"

#include <hwy/highway.h>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE V settle_float(V a) {
  const hn::DFromV<V> d;
  return hn::IfThenElse(hn::IsNaN(a), hn::Set(d, std::numeric_limits<hn::TFromD<decltype(d)>>::quiet_NaN()), a);
}

struct FloatProduct : Arithmetic {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
};

// `b` unless `a` is less: so not-a-number in either gives b.
template <class V>
HWY_INLINE V less_or_second(V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  return hn::Min(a, b);  // is just that, in one instruction
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}

struct FloatMin : Selection {
  // Unless both sides of the Or are the same, they are the two zeros, or one of them is not a number.
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(less_or_second(a, b), less_or_second(b, a));
  }
};

// The least of the negated.
struct FloatMax : FloatMin {
  template <class V>
  static HWY_INLINE V enter(V a) {
    return hn::Neg(a);
  }
  template <class V>
  static HWY_INLINE V leave(V a) {
    return hn::Neg(a);
  }
};

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
