// What a rank was asked to do, in sixteen bytes that go with every message: ranks that were asked for different things
// find out, and can say what.
#pragma once

#include "trireme/dtype.h"
#include "trireme/program.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme {

enum class CallKind : std::uint8_t { collective, send, receive };

/// In the context of a communicator: sends and receives, which are counted apart.
inline constexpr std::uint32_t kMessages = 0x80000000U;

struct Call {
  CallKind kind = CallKind::collective;
  Collective collective = Collective::barrier;
  Dtype dtype = Dtype::u8;
  Op op = Op::sum;
  std::uint8_t algorithm = 0;  ///< its place in algorithms()
  bool reduces = false;        ///< the op means something
  std::uint16_t shape = 0;     ///< of uneven counts, a hash, which is odd; kSplit; otherwise 0
  std::uint64_t root = 0;      ///< of those that have one; of a send or receive, the other rank
  std::uint64_t elements = 0;  ///< all together, on the rank that has the most of them

  static constexpr std::uint16_t kSplit = 2;  ///< an allgather of what communicators are made of

  bool operator==(const Call&) const = default;

  /// What goes with its messages, and is compared: a send and the receive that takes it are the same there.
  Call shared() const;

  void pack(std::uint64_t (&words)[2]) const;
  static Call unpack(const std::uint64_t (&words)[2]);

  /// "allreduce of 1000 f32, sum by ring".
  std::string describe() const;
};

}  // namespace trireme
