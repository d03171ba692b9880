#include "communicator/call.h"

#include "trireme/algorithms.h"

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr int kRootBits = 20;

}  // namespace

Call Call::shared() const {
  if (kind == CallKind::collective) return *this;
  Call call = *this;
  call.kind = CallKind::send;
  call.root = 0;
  return call;
}

void Call::pack(std::uint64_t (&words)[2]) const {
  std::uint64_t word = static_cast<std::uint64_t>(kind);
  const auto append = [&](std::uint64_t value, int bits) { word = word << bits | value; };
  append(static_cast<std::uint64_t>(collective), 4);
  append(static_cast<std::uint64_t>(dtype), 4);
  append(static_cast<std::uint64_t>(op), 4);
  append(reduces ? 1 : 0, 1);
  append(algorithm, 8);
  append(shape, 16);
  append(root, kRootBits);
  words[0] = word;
  words[1] = elements;
}

Call Call::unpack(const std::uint64_t (&words)[2]) {
  std::uint64_t word = words[0];
  const auto take = [&](int bits) {
    const std::uint64_t value = word & ((std::uint64_t{1} << bits) - 1);
    word >>= bits;
    return value;
  };
  Call call;
  call.root = take(kRootBits);
  call.shape = static_cast<std::uint16_t>(take(16));
  call.algorithm = static_cast<std::uint8_t>(take(8));
  call.reduces = take(1) != 0;
  call.op = static_cast<Op>(take(4));
  call.dtype = static_cast<Dtype>(take(4));
  call.collective = static_cast<Collective>(take(4));
  call.kind = static_cast<CallKind>(word & 3);
  call.elements = words[1];
  return call;
}

std::string Call::describe() const {
  // A peer may have sent anything.
  const auto known = [](auto value, int count) { return static_cast<int>(value) < count; };
  if (!known(kind, 3) || !known(collective, kCollectives) || !known(dtype, kDtypes) || !known(op, kOps)) {
    return "something unknown";
  }
  if (kind != CallKind::collective) {
    const bool sends = kind == CallKind::send;
    return fmt::format("{} of {} {} {} rank {}", sends ? "send" : "receive", elements, to_string(dtype),
                       sends ? "to" : "from", root);
  }
  if (shape == kSplit) return "split";
  std::string text(to_string(collective));
  if (collective == Collective::barrier) return text;
  text += fmt::format(" of {} {}", elements, to_string(dtype));
  if (shape != 0) text += " in uneven shares";
  const bool rooted = collective == Collective::broadcast || collective == Collective::reduce ||
                      collective == Collective::gather || collective == Collective::scatter;
  if (rooted) text += fmt::format(", root {}", root);
  if (reduces) text += fmt::format(", {}", to_string(op));
  const auto rows = algorithms();
  if (algorithm < rows.size()) text += fmt::format(" by {}", rows[algorithm].name);
  return text;
}

}  // namespace trireme
