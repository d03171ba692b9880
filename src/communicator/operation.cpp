#include "communicator/operation.h"

#include "communicator/engine.h"

#include <algorithm>

namespace trireme {

bool Operation::takes(std::uint32_t its_context, std::uint32_t its_sequence, int peer) const {
  if (context != its_context || sequence != its_sequence) return false;
  return from == -1 ? group->rank_of[peer] >= 0 : from == peer;
}

Operation::Part Operation::part(std::size_t elements, int segment) const {
  if (segments == 1) return {0, elements};
  constexpr std::size_t kLineElements = 64;  // whole lines for every dtype
  const auto count = static_cast<std::size_t>(segments);
  const std::size_t each = ((elements + count - 1) / count + kLineElements - 1) / kLineElements * kLineElements;
  const std::size_t begin = std::min(elements, each * static_cast<std::size_t>(segment));
  return {begin, std::min(elements, begin + each)};
}

std::size_t Operation::part_bytes(Run run, int segment) const {
  std::size_t elements = 0;
  for (int block = run.first; block < run.end(); ++block) {
    const Part piece = part(blocks[block].elements, segment);
    elements += piece.end - piece.begin;
  }
  return elements * bytes_of(call.dtype);
}

}  // namespace trireme
