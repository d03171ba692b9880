// The loops of all folds, one for any and one for two sources into one destination, for the instruction set that is being
// compiled. Included once for each of them.
//
// A block is four vectors: enough to hide the latency of an operation, few enough to stay in registers. Every source
// is read and every destination written once. The last block, if not whole, goes through a buffer, so that nothing
// past the end is touched and its elements see the same instructions as all others.
#if defined(TRIREME_KERNELS_FOLD_LOOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_KERNELS_FOLD_LOOP_INL_H
#undef TRIREME_KERNELS_FOLD_LOOP_INL_H
#else
#define TRIREME_KERNELS_FOLD_LOOP_INL_H
#endif

#include "kernels/fold.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A Format says how elements become vectors of its Tag, and back. The four vectors of a block are passed apart, as some
// instruction sets can't put vectors into arrays.
//   load(p, a0, a1, a2, a3)
//   store(a0, a1, a2, a3, p)         rounds to elements
//   round(a)                         what storing and loading again would give
//   divide(a0, a1, a2, a3, divisor)
//   settle(a)                        gives results that have several forms, as not-a-number does, one of them
// An Operation has apply(a, b), and is kArithmetic if results may need rounding, and may be divided. enter(a) and
// leave(a) lead to the representation that it works in, and back.

// Two sources into one destination, which is what small messages want: the whole blocks, without what the general case
// has to look at for each of them. Returns where they end.
template <class Format, class Operation>
std::size_t fold_pair(const Fold& fold) {
  using Element = typename Format::Element;
  using Tag = typename Format::Tag;
  const std::size_t block = 4 * hn::Lanes(Tag());
  const auto* const first = reinterpret_cast<const Element*>(fold.sources[0]);
  const auto* const second = reinterpret_cast<const Element*>(fold.sources[1]);
  auto* const destination = reinterpret_cast<Element*>(fold.destinations[0]);
  const std::size_t end = fold.end - (fold.end - fold.begin) % block;

  for (std::size_t i = fold.begin; i < end; i += block) {
    hn::Vec<Tag> a0, a1, a2, a3, b0, b1, b2, b3;
    Format::load(first + i, a0, a1, a2, a3);
    Format::load(second + i, b0, b1, b2, b3);
    a0 = Operation::leave(Operation::apply(Operation::enter(a0), Operation::enter(b0)));
    a1 = Operation::leave(Operation::apply(Operation::enter(a1), Operation::enter(b1)));
    a2 = Operation::leave(Operation::apply(Operation::enter(a2), Operation::enter(b2)));
    a3 = Operation::leave(Operation::apply(Operation::enter(a3), Operation::enter(b3)));
    Format::store(Format::settle(a0), Format::settle(a1), Format::settle(a2), Format::settle(a3), destination + i);
  }
  return end;
}

template <class Format, class Operation>
void fold_blocks(const Fold& fold) {
  using Element = typename Format::Element;
  using Tag = typename Format::Tag;
  const std::size_t block = 4 * hn::Lanes(Tag());
  const bool pair = fold.sources.size() == 2 && fold.destinations.size() == 1 && fold.divisor == 1;
  const std::size_t begin_of_rest = pair ? fold_pair<Format, Operation>(fold) : fold.begin;
  if (begin_of_rest == fold.end) return;
  HWY_ALIGN Element buffer[4 * hn::MaxLanes(Tag())] = {};

  for (std::size_t i = begin_of_rest; i < fold.end; i += block) {
    const std::size_t elements = std::min(block, fold.end - i);
    const auto block_of = [&](std::size_t source) HWY_ATTR {
      const Element* begin = reinterpret_cast<const Element*>(fold.sources[source]) + i;
      if (elements == block) return begin;
      std::memcpy(buffer, begin, elements * sizeof(Element));
      return static_cast<const Element*>(buffer);
    };

    hn::Vec<Tag> a0, a1, a2, a3;
    Format::load(block_of(0), a0, a1, a2, a3);
    a0 = Operation::enter(a0);
    a1 = Operation::enter(a1);
    a2 = Operation::enter(a2);
    a3 = Operation::enter(a3);
    for (std::size_t source = 1; source < fold.sources.size(); ++source) {
      hn::Vec<Tag> b0, b1, b2, b3;
      Format::load(block_of(source), b0, b1, b2, b3);
      a0 = Operation::apply(a0, Operation::enter(b0));
      a1 = Operation::apply(a1, Operation::enter(b1));
      a2 = Operation::apply(a2, Operation::enter(b2));
      a3 = Operation::apply(a3, Operation::enter(b3));
      if constexpr (Operation::kArithmetic) {
        if (source + 1 == fold.sources.size() && fold.divisor == 1) break;  // storing will round
        a0 = Format::round(a0);
        a1 = Format::round(a1);
        a2 = Format::round(a2);
        a3 = Format::round(a3);
      }
    }
    a0 = Operation::leave(a0);
    a1 = Operation::leave(a1);
    a2 = Operation::leave(a2);
    a3 = Operation::leave(a3);
    if constexpr (Operation::kArithmetic) {
      if (fold.divisor != 1) Format::divide(a0, a1, a2, a3, fold.divisor);
    }
    a0 = Format::settle(a0);
    a1 = Format::settle(a1);
    a2 = Format::settle(a2);
    a3 = Format::settle(a3);

    if (elements == block) {
      for (std::byte* destination : fold.destinations) {
        Format::store(a0, a1, a2, a3, reinterpret_cast<Element*>(destination) + i);
      }
    } else {
      Format::store(a0, a1, a2, a3, buffer);
      for (std::byte* destination : fold.destinations) {
        std::memcpy(reinterpret_cast<Element*>(destination) + i, buffer, elements * sizeof(Element));
      }
    }
  }
}

// Takes elements as they are.
struct Plain {
  template <class V>
  static HWY_INLINE V enter(V a) {
    return a;
  }
  template <class V>
  static HWY_INLINE V leave(V a) {
    return a;
  }
};

struct Arithmetic : Plain {
  static constexpr bool kArithmetic = true;
};

struct Selection : Plain {
  static constexpr bool kArithmetic = false;
};

struct Sum : Arithmetic {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};

// The four vectors of a block as they are in memory.
template <class D>
HWY_INLINE void load_four(D d, const hn::TFromD<D>* from, hn::Vec<D>& a0, hn::Vec<D>& a1, hn::Vec<D>& a2,
                          hn::Vec<D>& a3) {
  const std::size_t lanes = hn::Lanes(d);
  a0 = hn::LoadU(d, from);
  a1 = hn::LoadU(d, from + lanes);
  a2 = hn::LoadU(d, from + 2 * lanes);
  a3 = hn::LoadU(d, from + 3 * lanes);
}

template <class D>
HWY_INLINE void store_four(D d, hn::Vec<D> a0, hn::Vec<D> a1, hn::Vec<D> a2, hn::Vec<D> a3, hn::TFromD<D>* to) {
  const std::size_t lanes = hn::Lanes(d);
  hn::StoreU(a0, d, to);
  hn::StoreU(a1, d, to + lanes);
  hn::StoreU(a2, d, to + 2 * lanes);
  hn::StoreU(a3, d, to + 3 * lanes);
}

}  // namespace trireme::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
