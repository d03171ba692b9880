// How long a fold or a conversion takes beside a memcpy that reads and writes as many bytes in all: 1 is the speed of
// memory. In place means that the sources are the destinations, as when ranks that share memory reduce in a window.
#include "kernels/kernels.h"

#include "figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace trireme {
namespace {

enum class Placement { apart, in_place };

struct Fold {
  Op op;
  Dtype dtype;
  int sources;
  int destinations;
  Placement placement;
};

constexpr std::array kFolds = {
    Fold{Op::sum, Dtype::f32, 2, 1, Placement::apart},     Fold{Op::sum, Dtype::f32, 2, 1, Placement::in_place},
    Fold{Op::sum, Dtype::f32, 2, 2, Placement::apart},     Fold{Op::sum, Dtype::f32, 2, 2, Placement::in_place},
    Fold{Op::sum, Dtype::f32, 8, 1, Placement::apart},     Fold{Op::sum, Dtype::f32, 8, 8, Placement::in_place},
    Fold{Op::sum, Dtype::f64, 2, 1, Placement::in_place},  Fold{Op::sum, Dtype::f16, 2, 1, Placement::in_place},
    Fold{Op::sum, Dtype::f16, 8, 8, Placement::in_place},  Fold{Op::sum, Dtype::bf16, 2, 1, Placement::in_place},
    Fold{Op::sum, Dtype::bf16, 8, 8, Placement::in_place}, Fold{Op::sum, Dtype::i8, 2, 1, Placement::in_place},
    Fold{Op::sum, Dtype::u8, 2, 1, Placement::in_place},   Fold{Op::sum, Dtype::i32, 2, 1, Placement::in_place},
    Fold{Op::sum, Dtype::i64, 2, 1, Placement::in_place},  Fold{Op::average, Dtype::f32, 2, 1, Placement::in_place},
    Fold{Op::max, Dtype::f32, 2, 1, Placement::in_place},  Fold{Op::product, Dtype::f32, 2, 1, Placement::in_place},
};

struct Conversion {
  Dtype from;
  Dtype to;
};

constexpr std::array kConversions = {
    Conversion{Dtype::f32, Dtype::bf16}, Conversion{Dtype::bf16, Dtype::f32}, Conversion{Dtype::f32, Dtype::f16},
    Conversion{Dtype::f32, Dtype::f64},  Conversion{Dtype::i32, Dtype::f32},
};

// Page after page, each buffer some cache lines further into its first page, so that they do not all start in the same
// cache set. memcpy can be an order of magnitude slower (on AMD's Zen 3) when that distance is less than a line.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t number)
      : memory_(static_cast<std::byte*>(::operator new (bytes + kPage, std::align_val_t{kPage}))),
        begin_(memory_.get() + number * 256 % kPage) {
    std::memset(begin_, kByte, bytes);
  }

  std::byte* begin() const { return begin_; }

 private:
  static constexpr std::size_t kPage = 4096;
  static constexpr int kByte = 0x3C;  // of which all floats are ordinary numbers
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kPage}); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  std::byte* begin_;
};

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The time of `work`, on sources of so many bytes, over that of a memcpy which moves as many in all: in pieces as large
// as a source, as memcpy works otherwise for larger ones.
template <typename Work>
double ratio_to_copy(std::size_t bytes, std::size_t bytes_in_all, Work&& work) {
  const std::size_t copied = bytes_in_all / 2;
  const Buffer from(copied, 0);
  const Buffer to(copied, 1);
  const auto copy = [&] {
    for (std::size_t begin = 0; begin < copied; begin += bytes) {
      std::memcpy(to.begin() + begin, from.begin() + begin, std::min(bytes, copied - begin));
    }
  };
  // Short runs, and many: most of them pass without the processor being taken away.
  const std::size_t repeats = std::max<std::size_t>(1, (1 << 20) / bytes);
  const int runs = bytes < 1 << 20 ? 301 : 15;
  const auto seconds = [&](auto& each) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < repeats; ++i) each();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<double> copies, works;
  for (int run = 0; run < runs; ++run) {
    copies.push_back(seconds(copy));
    works.push_back(seconds(work));
  }
  return median(works) / median(copies);
}

double ratio_of(const Fold& fold, std::size_t bytes) {
  const int first_destination = fold.placement == Placement::apart ? fold.sources : 0;
  const int count = std::max(fold.sources, first_destination + fold.destinations);
  std::vector<Buffer> buffers;
  for (int i = 0; i < count; ++i) buffers.emplace_back(bytes, i);
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (int i = 0; i < fold.sources; ++i) sources.push_back(buffers[i].begin());
  for (int i = 0; i < fold.destinations; ++i) destinations.push_back(buffers[first_destination + i].begin());
  const int divisor = fold.op == Op::average ? fold.sources : 1;
  return ratio_to_copy(bytes, bytes * (fold.sources + fold.destinations), [&] {
    kernels::fold(fold.op, fold.dtype, destinations, sources, bytes / bytes_of(fold.dtype), divisor);
  });
}

double ratio_of(const Conversion& conversion, std::size_t bytes) {
  const std::size_t elements = bytes / bytes_of(conversion.from);
  const std::size_t converted = elements * bytes_of(conversion.to);
  const Buffer from(bytes, 0);
  const Buffer to(converted, 1);
  return ratio_to_copy(bytes, bytes + converted,
                       [&] { kernels::convert(conversion.to, to.begin(), conversion.from, from.begin(), elements); });
}

std::string name_of(const Fold& fold) {
  const std::string op = fold.op == Op::sum ? "" : fmt::format("{}_", to_string(fold.op));
  return fmt::format("fold_{}{}_{}to{}{}", op, to_string(fold.dtype), fold.sources, fold.destinations,
                     fold.placement == Placement::in_place ? "_in_place" : "");
}

std::string name_of(const Conversion& conversion) {
  return fmt::format("convert_{}_to_{}", to_string(conversion.from), to_string(conversion.to));
}

}  // namespace

std::vector<Figure> kernel_figures() {
  constexpr std::array<std::pair<const char*, std::size_t>, 2> kSizes = {
      {{"64KiB", 64U << 10U}, {"64MiB", 64U << 20U}}};
  std::vector<Figure> figures;
  for (const auto& [size, bytes] : kSizes) {
    const auto add = [&, bytes = bytes](const auto& what) {
      figures.push_back({fmt::format("kernels_{}_{}_vs_copy_ratio", name_of(what), size),
                         [what, bytes] { return ratio_of(what, bytes); }});
    };
    for (const Fold& fold : kFolds) add(fold);
    for (const Conversion& conversion : kConversions) add(conversion);
  }
  return figures;
}

}  // namespace trireme
