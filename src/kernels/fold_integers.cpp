// Folds of integers. Sums and products wrap.
#include "kernels/fold.h"

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Highway includes this file again for each instruction set, and the order matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fold_integers.cpp"
#include <hwy/foreach_target.h>
#include "kernels/fold_loop-inl.h"
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

// In a float whose mantissa holds both numbers, the nearest of a quotient that is not whole is not whole either: so
// cutting it gives the right result, and processors divide vectors of floats only.
template <typename T>
HWY_INLINE T divided(T a, int divisor) {
  using Wide = std::conditional_t<sizeof(T) == 1, float, double>;
  if constexpr (sizeof(T) == 8) {
    return a / divisor;
  } else {
    return static_cast<T>(static_cast<Wide>(a) / static_cast<Wide>(divisor));
  }
}

template <typename T>
struct Integers {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  using V = hn::Vec<Tag>;

  static HWY_INLINE void load(const T* from, V& a0, V& a1, V& a2, V& a3) { load_four(Tag(), from, a0, a1, a2, a3); }
  static HWY_INLINE void store(V a0, V a1, V a2, V a3, T* to) { store_four(Tag(), a0, a1, a2, a3, to); }
  static HWY_INLINE V round(V a) { return a; }
  static HWY_INLINE void divide(V& a0, V& a1, V& a2, V& a3, int divisor) {
    HWY_ALIGN T elements[4 * hn::MaxLanes(Tag())];
    store(a0, a1, a2, a3, elements);
    for (std::size_t i = 0; i < 4 * hn::Lanes(Tag()); ++i) elements[i] = divided(elements[i], divisor);
    load(elements, a0, a1, a2, a3);
  }
  static HWY_INLINE V settle(V a) { return a; }
};

struct Min : Selection {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Min(a, b);
  }
};

struct Max : Selection {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Max(a, b);
  }
};

// Bytes: two in each lane of 16 bits, the upper ones multiplied where they are.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V multiply_bytes(D d, V a, V b) {
  const hn::RepartitionToWide<hn::RebindToUnsigned<D>> pairs;
  const auto a2 = hn::BitCast(pairs, a), b2 = hn::BitCast(pairs, b);
  const auto upper = hn::Set(pairs, 0xFF00);
  const auto lower_product = hn::AndNot(upper, hn::Mul(a2, b2));
  return hn::BitCast(d, hn::Or(lower_product, hn::Mul(hn::And(a2, upper), hn::ShiftRight<8>(b2))));
}

// 64 bits: from halves, as in long multiplication. The product of the upper ones is beyond the result.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V multiply_longs(D d, V a, V b) {
  const hn::RebindToUnsigned<D> wide;
  const hn::RepartitionToNarrow<decltype(wide)> halves;
  const auto a2 = hn::BitCast(halves, a), b2 = hn::BitCast(halves, b);
  const auto a_upper = hn::BitCast(halves, hn::ShiftRight<32>(hn::BitCast(wide, a)));
  const auto b_upper = hn::BitCast(halves, hn::ShiftRight<32>(hn::BitCast(wide, b)));
  const auto across = hn::Add(hn::MulEven(a_upper, b2), hn::MulEven(a2, b_upper));
  return hn::BitCast(d, hn::Add(hn::MulEven(a2, b2), hn::ShiftLeft<32>(across)));
}

struct Product : Arithmetic {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    using D = hn::DFromV<V>;
    constexpr std::size_t kBytes = sizeof(hn::TFromD<D>);
    if constexpr (HWY_TARGET == HWY_SCALAR || kBytes == 4) {
      return hn::Mul(a, b);
    } else if constexpr (kBytes == 1) {
      return multiply_bytes(D(), a, b);
    } else {
      return multiply_longs(D(), a, b);
    }
  }
};

struct And : Selection {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};

struct Or : Selection {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};

struct Xor : Selection {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};

template <typename T>
void run_integers_of(const Fold& fold) {
  switch (fold.op) {
    case Op::min: return fold_blocks<Integers<T>, Min>(fold);
    case Op::max: return fold_blocks<Integers<T>, Max>(fold);
    case Op::product: return fold_blocks<Integers<T>, Product>(fold);
    default: return fold_blocks<Integers<T>, Sum>(fold);
  }
}

void run_bytes(const Fold& fold) {
  switch (fold.op) {
    case Op::bit_and: return fold_blocks<Integers<std::uint8_t>, And>(fold);
    case Op::bit_or: return fold_blocks<Integers<std::uint8_t>, Or>(fold);
    case Op::bit_xor: return fold_blocks<Integers<std::uint8_t>, Xor>(fold);
    default: return run_integers_of<std::uint8_t>(fold);
  }
}

void run_integers(const Fold& fold) {
  switch (fold.dtype) {
    case Dtype::i8: return run_integers_of<std::int8_t>(fold);
    case Dtype::i32: return run_integers_of<std::int32_t>(fold);
    case Dtype::i64: return run_integers_of<std::int64_t>(fold);
    default: return run_bytes(fold);
  }
}

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels {

HWY_EXPORT(run_integers);

void fold_integers(const Fold& fold) { HWY_DYNAMIC_DISPATCH(run_integers)(fold); }

}  // namespace trireme::kernels
#endif
