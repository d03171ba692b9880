// Kernels read and write nothing outside the elements they are given: the pages before and after are out of bounds.
#include "kernels/kernels.h"
#include "kernels/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <sys/mman.h>
#include <unistd.h>

namespace trireme::kernels {
namespace {

class Page {
 public:
  Page() : memory_(::mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED || ::mprotect(begin(), size_, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  ~Page() { ::munmap(memory_, 3 * size_); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  std::byte* begin() const { return static_cast<std::byte*>(memory_) + size_; }
  std::byte* end() const { return begin() + size_; }

 private:
  std::size_t size_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* memory_;
};

TEST(Memory, FoldsStayWithinTheirElements) {
  const Page first, second, third;
  test::on_every_target([&] {
    for (const Dtype dtype : test::kAllDtypes) {
      for (std::size_t elements = 0; elements <= 150; ++elements) {
        const std::size_t bytes = elements * bytes_of(dtype);
        for (const int divisor : {1, 2}) {
          const std::array<const std::byte*, 2> at_begin = {first.begin(), second.begin()};
          const std::array<const std::byte*, 2> at_end = {first.end() - bytes, second.end() - bytes};
          const std::array to_begin = {third.begin()}, to_end = {third.end() - bytes};
          fold(Op::sum, dtype, to_begin, at_begin, elements, divisor);
          fold(Op::sum, dtype, to_end, at_end, elements, divisor);
          fold(Op::sum, dtype, to_end, std::span(at_end).first(1), elements, divisor);
        }
      }
    }
  });
}

TEST(Memory, CopiesStayWithinTheirBytes) {
  const Page first, second;
  std::iota(reinterpret_cast<unsigned char*>(first.begin()), reinterpret_cast<unsigned char*>(first.end()), 7);
  test::on_every_target([&] {
    for (const std::size_t bytes : {0, 1, 31, 500, 2047, 2048, 2049, 3001, 4090, 4096}) {
      for (std::size_t shift = 0; shift < 35 && shift + bytes <= 4096; ++shift) {
        for (std::byte* const to : {second.begin() + shift, second.end() - shift - bytes}) {
          for (const std::byte* const from : {first.begin(), first.end() - bytes}) {
            std::memset(second.begin(), 0, 4096);
            copy(to, from, bytes);
            ASSERT_EQ(std::memcmp(to, from, bytes), 0) << bytes << " bytes, shifted by " << shift;
            const auto written = 4096 - std::count(second.begin(), second.end(), std::byte{0});
            ASSERT_EQ(written, bytes - std::count(from, from + bytes, std::byte{0}));
          }
        }
      }
    }
  });
}

TEST(Memory, ConversionsStayWithinTheirElements) {
  const Page first, second;
  test::on_every_target([&] {
    for (const Dtype from : test::kAllDtypes) {
      for (const Dtype to : test::kAllDtypes) {
        for (std::size_t elements = 0; elements <= 70; ++elements) {
          convert(to, second.begin(), from, first.begin(), elements);
          convert(to, second.end() - elements * bytes_of(to), from, first.end() - elements * bytes_of(from), elements);
        }
      }
    }
  });
}

TEST(Memory, NothingIsDoneWithoutDestinations) {
  const std::array<float, 3> values = {1, 2, 3};
  const std::array sources = {reinterpret_cast<const std::byte*>(values.data())};
  fold(Op::sum, Dtype::f32, {}, sources, values.size());
  fold(Op::sum, Dtype::f32, {}, sources, values.size(), 2);
}

}  // namespace
}  // namespace trireme::kernels
