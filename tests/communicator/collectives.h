// One call of any collective, as one rank, with what it gives and what must come of it.
#pragma once

#include "communicator/payload.h"
#include "trireme/algorithms.h"

#include <string>
#include <vector>

namespace trireme::test {

/// How a rank gives its buffers.
struct Buffering {
  bool window = false;
  bool in_place = false;
};

struct Case {
  const Algorithm* row = nullptr;  ///< null: whatever is chosen for `collective`
  Collective collective = Collective::allreduce;
  std::size_t elements = 0;  ///< of the buffer; of a share, where ranks have shares
  Dtype dtype = Dtype::f32;
  Op op = Op::sum;
  int root = 0;
  std::vector<Buffering> buffering = {};  ///< by rank, and again from the start
  std::uint32_t seed = 1;

  std::string describe(int ranks) const;
};

/// Calls it as this rank; what is wrong with what came of it, or nothing.
std::string perform(Communicator& communicator, const Case& c);

bool is_rooted(Collective collective);
bool reduces(Collective collective);

}  // namespace trireme::test
