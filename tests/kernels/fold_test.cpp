// Every fold, on every instruction set, beside the reference: how many sources, destinations and elements there are,
// and where they are in memory.
#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "kernels/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace trireme::kernels {
namespace {

using test::Bits;
using test::Guarded;
using test::holds;
using test::on_every_target;

constexpr std::size_t kMost = 4099;
constexpr auto kLengths = {0UL, 1UL, 2UL, 3UL, 7UL, 15UL, 16UL, 17UL, 31UL, 33UL, 63UL, 64UL, 65UL, 1000UL, kMost};

class Buffers {
 public:
  Buffers(Dtype dtype, std::size_t count, std::size_t elements) : dtype_(dtype) {
    for (std::size_t i = 0; i < count; ++i) {
      values_.push_back(test::some_elements(dtype, i, elements));
      memory_.emplace_back(dtype, values_.back(), i);
    }
    point();
  }

  Buffers copy() const {
    Buffers other = *this;
    other.point();
    return other;
  }

  std::span<const std::byte* const> sources() const { return sources_; }
  std::span<std::byte* const> destinations() const { return destinations_; }

  std::vector<Bits> folded(Op op, int divisor = 1) const {
    std::vector<Bits> results(values_[0].size());
    std::vector<Bits> column(values_.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      for (std::size_t s = 0; s < column.size(); ++s) column[s] = values_[s][i];
      results[i] = test::reference_fold(op, dtype_, column, divisor);
    }
    return results;
  }

  const std::vector<Bits>& values(std::size_t buffer) const { return values_[buffer]; }

  bool guards_untouched() const {
    return std::all_of(memory_.begin(), memory_.end(), [](const Guarded& buffer) { return buffer.guards_untouched(); });
  }

 private:
  void point() {
    sources_.clear();
    destinations_.clear();
    for (Guarded& buffer : memory_) {
      sources_.push_back(buffer.data());
      destinations_.push_back(buffer.data());
    }
  }

  Dtype dtype_;
  std::vector<std::vector<Bits>> values_;
  std::vector<Guarded> memory_;
  std::vector<const std::byte*> sources_;
  std::vector<std::byte*> destinations_;
};

// Calls `test` with every operation on every instruction set, and with what it should give.
template <typename Test>
void with_every_operation(Dtype dtype, const Buffers& from, int divisor, Test test) {
  for (const Op op : test::operations(dtype)) {
    SCOPED_TRACE(fmt::format("{} of {} sources, by {}", to_string(op), from.sources().size(), divisor));
    const std::vector<Bits> expected = from.folded(op, divisor);
    on_every_target([&] { test(op, expected); });
    if (testing::Test::HasFatalFailure()) return;
  }
}

class Folds : public testing::TestWithParam<Dtype> {};

TEST_P(Folds, AreTheReferences) {
  const Dtype dtype = GetParam();
  for (const std::size_t sources : {1, 2, 3, 5, 9, 17}) {
    const Buffers from(dtype, sources, kMost);
    with_every_operation(dtype, from, 1, [&](Op op, const std::vector<Bits>& expected) {
      for (const std::size_t count : {1, 2, 3, 9}) {
        for (const std::size_t elements : kLengths) {
          std::vector<Guarded> to;
          for (std::size_t i = 0; i < count; ++i) to.emplace_back(dtype, elements, i);
          std::vector<std::byte*> destinations(count);
          for (std::size_t i = 0; i < count; ++i) destinations[i] = to[i].data();
          fold(op, dtype, destinations, from.sources(), elements);
          for (const Guarded& buffer : to) {
            ASSERT_TRUE(holds(dtype, buffer.data(), expected, elements));
            ASSERT_TRUE(buffer.guards_untouched());
          }
        }
      }
    });
    for (std::size_t s = 0; s < sources; ++s) EXPECT_TRUE(holds(dtype, from.sources()[s], from.values(s), kMost));
  }
}

TEST_P(Folds, DivideTheResult) {
  constexpr std::size_t kElements = 333;
  const Dtype dtype = GetParam();
  for (const std::size_t sources : {1, 2, 3}) {
    const Buffers from(dtype, sources, kElements);
    for (const int divisor : {1, 2, 3, 7, 255, 1000, 2147483647}) {
      with_every_operation(dtype, from, divisor, [&](Op op, const std::vector<Bits>& expected) {
        Guarded to(dtype, kElements, 0);
        std::byte* const destination = to.data();
        fold(op, dtype, {&destination, 1}, from.sources(), kElements, divisor);
        ASSERT_TRUE(holds(dtype, destination, expected, kElements));
        ASSERT_TRUE(to.guards_untouched());
      });
    }
  }
}

TEST_P(Folds, MayWriteToOneSource) {
  const Dtype dtype = GetParam();
  for (const std::size_t sources : {1, 2, 3, 5, 9}) {
    for (const std::size_t elements : {1, 17, 65, 300}) {
      const Buffers untouched(dtype, sources, elements);
      with_every_operation(dtype, untouched, 1, [&](Op op, const std::vector<Bits>& expected) {
        for (std::size_t position = 0; position < sources; ++position) {
          Buffers buffers = untouched.copy();
          fold(op, dtype, buffers.destinations().subspan(position, 1), buffers.sources(), elements);
          for (std::size_t s = 0; s < sources; ++s) {
            ASSERT_TRUE(holds(dtype, buffers.sources()[s], s == position ? expected : buffers.values(s), elements));
          }
          ASSERT_TRUE(buffers.guards_untouched());
        }
      });
    }
  }
}

TEST_P(Folds, MayWriteToAllSources) {
  const Dtype dtype = GetParam();
  for (const std::size_t sources : {1, 2, 3, 5, 9}) {
    for (const std::size_t elements : {1, 17, 65, 300}) {
      const Buffers untouched(dtype, sources, elements);
      with_every_operation(dtype, untouched, 1, [&](Op op, const std::vector<Bits>& expected) {
        Buffers buffers = untouched.copy();
        fold(op, dtype, buffers.destinations(), buffers.sources(), elements);
        for (const std::byte* buffer : buffers.sources()) ASSERT_TRUE(holds(dtype, buffer, expected, elements));
        ASSERT_TRUE(buffers.guards_untouched());
      });
    }
  }
}

// However the sources are cut into folds, as an executor may when some of them come later.
TEST_P(Folds, AreTheSameInSteps) {
  constexpr std::size_t kSources = 9, kElements = 517;
  const Dtype dtype = GetParam();
  const Buffers from(dtype, kSources, kElements);
  Guarded at_once(dtype, kElements, 0), in_steps(dtype, kElements, 1);
  std::byte* const whole = at_once.data();
  std::byte* const part = in_steps.data();
  for (const Op op : test::operations(dtype)) {
    fold(op, dtype, {&whole, 1}, from.sources(), kElements, 7);
    for (const std::size_t step : {1, 2, 3, 4}) {
      fold(op, dtype, {&part, 1}, from.sources().first(1), kElements);
      for (std::size_t done = 1; done < kSources; done += step) {
        const auto more = from.sources().subspan(done, std::min(step, kSources - done));
        std::vector<const std::byte*> operands = {part};
        operands.insert(operands.end(), more.begin(), more.end());
        fold(op, dtype, {&part, 1}, operands, kElements, done + step >= kSources ? 7 : 1);
      }
      EXPECT_TRUE(std::equal(whole, whole + kElements * bytes_of(dtype), part)) << to_string(op) << ", step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Folds, testing::ValuesIn(test::kAllDtypes), test::name_of);

}  // namespace
}  // namespace trireme::kernels
