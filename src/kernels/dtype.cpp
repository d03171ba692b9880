#include "trireme/dtype.h"

#include "trireme/names.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>

namespace trireme {
namespace {

struct DtypeRow {
  std::string_view name;
  std::size_t bytes;
  bool integer;
};

constexpr std::array<DtypeRow, kDtypes> kDtypeRows = {{
    {"f32", 4, false},
    {"f64", 8, false},
    {"f16", 2, false},
    {"bf16", 2, false},
    {"i8", 1, true},
    {"u8", 1, true},
    {"i32", 4, true},
    {"i64", 8, true},
}};

constexpr std::array<std::string_view, kOps> kOpNames = {"sum", "average", "min", "max", "product", "and", "or", "xor"};

const DtypeRow& row(Dtype dtype) { return kDtypeRows[static_cast<std::size_t>(dtype)]; }

int index_of(std::string_view name, std::span<const std::string> names, std::string_view kind) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  const std::string guess = nearest(name, names);
  if (!guess.empty()) throw UsageError(fmt::format("no {} is called '{}'; did you mean '{}'?", kind, name, guess));
  throw UsageError(fmt::format("no {} is called '{}'; there are {}", kind, name, fmt::join(names, ", ")));
}

}  // namespace

std::size_t bytes_of(Dtype dtype) { return row(dtype).bytes; }

bool is_integer(Dtype dtype) { return row(dtype).integer; }

bool supports(Dtype dtype, Op op) {
  const bool bitwise = op == Op::bit_and || op == Op::bit_or || op == Op::bit_xor;
  return !bitwise || is_integer(dtype);
}

std::string_view to_string(Dtype dtype) { return row(dtype).name; }

std::string_view to_string(Op op) { return kOpNames[static_cast<std::size_t>(op)]; }

Dtype parse_dtype(std::string_view name) {
  std::array<std::string, kDtypes> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kDtypeRows[i].name;
  return static_cast<Dtype>(index_of(name, names, "dtype"));
}

Op parse_op(std::string_view name) {
  const std::array<std::string, kOps> names = [] {
    std::array<std::string, kOps> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = kOpNames[i];
    return all;
  }();
  return static_cast<Op>(index_of(name, names, "operation"));
}

}  // namespace trireme
