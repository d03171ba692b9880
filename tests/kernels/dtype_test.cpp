// Names of dtypes and operations, and what goes with what.
#include "trireme/dtype.h"

#include "kernels/support.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace trireme {
namespace {

using test::usage_error;

TEST(Dtypes, NamesLeadBack) {
  std::set<std::string_view> names;
  for (const Dtype dtype : test::kAllDtypes) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    names.insert(to_string(dtype));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"}));
}

TEST(Dtypes, OperationsNamesLeadBack) {
  std::set<std::string_view> names;
  for (const Op op : test::kAllOps) {
    EXPECT_EQ(parse_op(to_string(op)), op);
    names.insert(to_string(op));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"sum", "average", "min", "max", "product", "and", "or", "xor"}));
}

TEST(Dtypes, WrongNamesAreAnsweredWithTheNearest) {
  EXPECT_EQ(usage_error([] { parse_dtype("f23"); }), "no dtype is called 'f23'; did you mean 'f32'?");
  EXPECT_EQ(usage_error([] { parse_dtype("bf61"); }), "no dtype is called 'bf61'; did you mean 'bf16'?");
  EXPECT_EQ(usage_error([] { parse_op("averge"); }), "no operation is called 'averge'; did you mean 'average'?");
  EXPECT_EQ(usage_error([] { parse_op("prodcut"); }), "no operation is called 'prodcut'; did you mean 'product'?");
}

TEST(Dtypes, NamesLikeNoneAreAnsweredWithAll) {
  EXPECT_EQ(usage_error([] { parse_dtype("complex128"); }),
            "no dtype is called 'complex128'; there are f32, f64, f16, bf16, i8, u8, i32, i64");
  EXPECT_EQ(usage_error([] { parse_op("concatenate"); }),
            "no operation is called 'concatenate'; there are sum, average, min, max, product, and, or, xor");
  EXPECT_NE(usage_error([] { parse_dtype(""); }), "nothing was thrown");
}

TEST(Dtypes, SizesAreThoseOfTheTypes) {
  const auto agrees = [](auto type) { return bytes_of(kDtypeOf<decltype(type)>) == sizeof(type); };
  EXPECT_TRUE(agrees(float{}) && agrees(double{}) && agrees(Float16{}) && agrees(BFloat16{}));
  EXPECT_TRUE(agrees(std::int8_t{}) && agrees(std::uint8_t{}) && agrees(std::int32_t{}) && agrees(std::int64_t{}));
}

TEST(Dtypes, OnlyIntegersHaveBitwiseOperations) {
  for (const Dtype dtype : test::kAllDtypes) {
    for (const Op op : {Op::bit_and, Op::bit_or, Op::bit_xor}) EXPECT_EQ(supports(dtype, op), is_integer(dtype));
    for (const Op op : {Op::sum, Op::average, Op::min, Op::max, Op::product}) EXPECT_TRUE(supports(dtype, op));
  }
}

}  // namespace
}  // namespace trireme
