// Conversions between f32 and f64.
#include "kernels/convert.h"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

// Highway includes this file again for each instruction set, and the order matters.
// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert_doubles.cpp"
#include <hwy/foreach_target.h>
#include "kernels/float_operations-inl.h"
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

using DoubleTag = hn::ScalableTag<double>;
using SingleTag = hn::Rebind<float, DoubleTag>;  // with as many lanes

struct Widen {
  using To = double;
  using From = float;
  static HWY_INLINE void step(const float* from, double* to) {
    hn::StoreU(hn::PromoteTo(DoubleTag(), settle_float(hn::LoadU(SingleTag(), from))), DoubleTag(), to);
  }
};

struct Narrow {
  using To = float;
  using From = double;
  static HWY_INLINE void step(const double* from, float* to) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // There DemoteTo makes infinity the largest number.
    for (std::size_t i = 0; i < hn::Lanes(DoubleTag()); ++i) {
      to[i] = std::isnan(from[i]) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(from[i]);
    }
#else
    hn::StoreU(hn::DemoteTo(SingleTag(), settle_float(hn::LoadU(DoubleTag(), from))), SingleTag(), to);
#endif
  }
};

// The last elements go through buffers, as in folds.
template <class Conversion>
void convert_by(std::byte* to_bytes, const std::byte* from_bytes, std::size_t elements) {
  using To = typename Conversion::To;
  using From = typename Conversion::From;
  auto* to = reinterpret_cast<To*>(to_bytes);
  const auto* from = reinterpret_cast<const From*>(from_bytes);
  const std::size_t lanes = hn::Lanes(DoubleTag());
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) Conversion::step(from + i, to + i);
  if (i == elements) return;

  HWY_ALIGN From last_from[hn::MaxLanes(DoubleTag())] = {};
  HWY_ALIGN To last_to[hn::MaxLanes(DoubleTag())];
  std::memcpy(last_from, from + i, (elements - i) * sizeof(From));
  Conversion::step(last_from, last_to);
  std::memcpy(to + i, last_to, (elements - i) * sizeof(To));
}

void widen(std::byte* to, const std::byte* from, std::size_t elements) { convert_by<Widen>(to, from, elements); }

void narrow(std::byte* to, const std::byte* from, std::size_t elements) { convert_by<Narrow>(to, from, elements); }

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernels {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);

void convert_to_f64(std::byte* to, const std::byte* from, std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(widen)(to, from, elements);
}

void convert_to_f32(std::byte* to, const std::byte* from, std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(narrow)(to, from, elements);
}

}  // namespace trireme::kernels
#endif
