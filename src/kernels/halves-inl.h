// f16 and bf16 in the lanes of float vectors, for the instruction set that is being compiled.
#if defined(TRIREME_KERNELS_HALVES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_KERNELS_HALVES_INL_H
#undef TRIREME_KERNELS_HALVES_INL_H
#else
#define TRIREME_KERNELS_HALVES_INL_H
#endif

#include <cstdint>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using HalfBitsTag = hn::Rebind<std::uint16_t, FloatTag>;
using FloatVector = hn::Vec<FloatTag>;
using BitsVector = hn::Vec<BitsTag>;
using HalfBitsVector = hn::Vec<HalfBitsTag>;

HWY_INLINE BitsVector bits_of(FloatVector a) { return hn::BitCast(BitsTag(), a); }
HWY_INLINE FloatVector float_of(BitsVector bits) { return hn::BitCast(FloatTag(), bits); }
HWY_INLINE BitsVector all(std::uint32_t bits) { return hn::Set(BitsTag(), bits); }

// Which lanes are more than `limit`, if the sign bits of all are 0.
HWY_INLINE hn::Mask<BitsTag> above(BitsVector bits, std::int32_t limit) {
  const hn::RebindToSigned<BitsTag> tag;
  return hn::RebindMask(BitsTag(), hn::Gt(hn::BitCast(tag, bits), hn::Set(tag, limit)));
}

// Lanes whose upper 16 bits are 0.
HWY_INLINE HalfBitsVector lower_halves(BitsVector bits) {
  return hn::DemoteTo(HalfBitsTag(), hn::BitCast(hn::RebindToSigned<BitsTag>(), bits));
}

// Rounds to the nearest bf16, ties to even; it is in the upper 16 bits, and the lower ones are left over. A carry makes
// infinity of what is too large. Not-a-number stays what it is if its lower half is 0, as it is in all that comes of
// bf16: instruction sets give an operand's payload, or their own, which has none.
HWY_INLINE BitsVector rounded_to_bf16(FloatVector a) {
  const BitsVector bits = bits_of(a);
  const BitsVector odd = hn::And(hn::ShiftRight<16>(bits), all(1));
  return hn::Add(hn::Add(bits, all(0x7FFF)), odd);
}

// Whether there are instructions for f16 that round as IEEE 754 says. What Highway does elsewhere rounds otherwise.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)) || \
    (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR)

HWY_INLINE FloatVector from_f16(HalfBitsVector half) {
  return hn::PromoteTo(FloatTag(), hn::BitCast(hn::Rebind<hwy::float16_t, FloatTag>(), half));
}

HWY_INLINE HalfBitsVector to_f16(FloatVector a) {
  return hn::BitCast(HalfBitsTag(), hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatTag>(), a));
}

#else

// Called rather than inlined: they are long, and the processors that need them old.

// The exponents' biases differ by 112. Multiplying by 2^112 gives subnormals their exponent too.
static HWY_NOINLINE FloatVector from_f16(HalfBitsVector half) {
  const BitsVector bits = hn::PromoteTo(BitsTag(), half);
  const BitsVector sign = hn::ShiftLeft<16>(hn::And(bits, all(0x8000)));
  const BitsVector magnitude = hn::ShiftLeft<13>(hn::And(bits, all(0x7FFF)));
  const FloatVector number = hn::Mul(float_of(magnitude), hn::Set(FloatTag(), 0x1p112F));
  const BitsVector exponent = hn::IfThenElseZero(above(magnitude, 0x0F7FFFFF), all(0x7F800000));  // not finite
  return float_of(hn::Or(hn::Or(bits_of(number), sign), exponent));
}

static HWY_NOINLINE HalfBitsVector to_f16(FloatVector a) {
  const BitsVector sign = hn::And(bits_of(a), all(0x80000000));
  const BitsVector magnitude = hn::Xor(bits_of(a), sign);
  // As for bf16, and the bias is taken off.
  const BitsVector odd = hn::And(hn::ShiftRight<13>(magnitude), all(1));
  const BitsVector normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, all(0xC8000FFF)), odd));
  // Adding 1/2, whose last bit is worth what the last one of a subnormal is, rounds to that.
  const FloatVector half = hn::Set(FloatTag(), 0.5F);
  const BitsVector subnormal = hn::Sub(bits_of(hn::Add(float_of(magnitude), half)), bits_of(half));
  BitsVector bits = hn::IfThenElse(above(magnitude, 0x387FFFFF), normal, subnormal);
  bits = hn::IfThenElse(above(magnitude, 0x477FFFFF), all(0x7C00), bits);  // 65536 and more
  bits = hn::IfThenElse(above(magnitude, 0x7F800000), all(0x7E00), bits);
  return lower_halves(hn::Or(bits, hn::ShiftRight<16>(sign)));
}

#endif

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
