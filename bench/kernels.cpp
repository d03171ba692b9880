// How long a fold takes beside a memcpy that reads and writes as many bytes in all: 1 is the speed of memory. In place
// means that the sources are the destinations, as when ranks that share memory reduce in a window.
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
#include <string_view>
#include <utility>

namespace trireme {
namespace {

enum class Placement { apart, in_place };

struct Case {
  Dtype dtype;
  int sources;
  int destinations;
  Placement placement;
};

constexpr std::array kCases = {
    Case{Dtype::f32, 2, 1, Placement::apart},     Case{Dtype::f32, 2, 1, Placement::in_place},
    Case{Dtype::f32, 2, 2, Placement::apart},     Case{Dtype::f32, 2, 2, Placement::in_place},
    Case{Dtype::f32, 8, 1, Placement::apart},     Case{Dtype::f32, 8, 8, Placement::in_place},
    Case{Dtype::f64, 2, 1, Placement::in_place},  Case{Dtype::f16, 2, 1, Placement::in_place},
    Case{Dtype::f16, 8, 8, Placement::in_place},  Case{Dtype::bf16, 2, 1, Placement::in_place},
    Case{Dtype::bf16, 8, 8, Placement::in_place}, Case{Dtype::i8, 2, 1, Placement::in_place},
};

// Page after page, each buffer some cache lines further into its first page, so that they do not all start in the same
// cache set. memcpy can be an order of magnitude slower (on AMD's Zen 3) when that distance is less than a line.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t number)
      : memory_(static_cast<std::byte*>(::operator new (bytes + kPage, std::align_val_t{kPage}))),
        begin_(memory_.get() + number * 256 % kPage) {
    std::memset(begin_, 1, bytes);
  }

  std::byte* begin() const { return begin_; }

 private:
  static constexpr std::size_t kPage = 4096;
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kPage}); }
  };

  std::unique_ptr<std::byte, Free> memory_;
  std::byte* begin_;
};

class Memory {
 public:
  Memory(const Case& what, std::size_t bytes)
      : piece_(bytes), copied_(bytes * (what.sources + what.destinations) / 2), from_(copied_, 0), to_(copied_, 1) {
    const int first_destination = what.placement == Placement::apart ? what.sources : 0;
    const int buffers = std::max(what.sources, first_destination + what.destinations);
    for (int i = 0; i < buffers; ++i) buffers_.emplace_back(bytes, i);
    for (int i = 0; i < what.sources; ++i) sources_.push_back(buffers_[i].begin());
    for (int i = 0; i < what.destinations; ++i) destinations_.push_back(buffers_[first_destination + i].begin());
  }

  std::span<const std::byte* const> sources() const { return sources_; }
  std::span<std::byte* const> destinations() const { return destinations_; }

  // In pieces as large as a source, as memcpy works otherwise for larger ones.
  void copy() {
    for (std::size_t begin = 0; begin < copied_; begin += piece_) {
      std::memcpy(to_.begin() + begin, from_.begin() + begin, std::min(piece_, copied_ - begin));
    }
  }

 private:
  std::size_t piece_;
  std::size_t copied_;
  Buffer from_;
  Buffer to_;
  std::vector<Buffer> buffers_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
};

double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double ratio_to_copy(const Case& what, std::size_t bytes) {
  Memory memory(what, bytes);
  const std::size_t elements = bytes / bytes_of(what.dtype);
  // Short runs, and many: most of them pass without the processor being taken away.
  const std::size_t repeats = std::max<std::size_t>(1, (1 << 20) / bytes);
  const int runs = bytes < 1 << 20 ? 301 : 15;
  const auto seconds = [&](auto work) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < repeats; ++i) work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<double> copies, folds;
  for (int run = 0; run < runs; ++run) {
    copies.push_back(seconds([&] { memory.copy(); }));
    folds.push_back(
        seconds([&] { kernels::fold(Op::sum, what.dtype, memory.destinations(), memory.sources(), elements); }));
  }
  return median(folds) / median(copies);
}

}  // namespace

std::vector<Figure> kernel_figures() {
  constexpr std::array<std::pair<const char*, std::size_t>, 2> kSizes = {
      {{"64KiB", 64U << 10U}, {"64MiB", 64U << 20U}}};
  std::vector<Figure> figures;
  for (const auto& size : kSizes) {
    for (const Case& what : kCases) {
      const std::string_view place = what.placement == Placement::in_place ? "_in_place" : "";
      figures.push_back({fmt::format("kernels_fold_{}_{}to{}{}_{}_vs_copy_ratio", to_string(what.dtype), what.sources,
                                     what.destinations, place, size.first),
                         [what, bytes = size.second] { return ratio_to_copy(what, bytes); }});
    }
  }
  return figures;
}

}  // namespace trireme
