// What the core alone can do: prove an algorithm, and run it between ranks.
#include "trireme/algorithms.h"
#include "trireme/communicator.h"
#include "trireme/verify.h"

#include <cstdio>
#include <vector>

int main() try {
  trireme::Communicator world = trireme::init();
  const trireme::Algorithm& ring = trireme::find_algorithm("ring");
  const trireme::Proof proof = trireme::verify(trireme::make_schedule(ring, {.ranks = world.ranks()}));

  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + static_cast<float>(world.rank());
  world.allreduce(values, trireme::Op::sum, {.algorithm = "ring"});
  const auto ranks = static_cast<float>(world.ranks());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = ranks * static_cast<float>(i) + ranks * (ranks - 1) / 2;
    if (values[i] != expected || !proof.proven()) return 1;
  }
  std::printf("core: rank %d of %d has the sum\n", world.rank(), world.ranks());
} catch (const std::exception& error) {
  std::fprintf(stderr, "core: %s\n", error.what());
  return 1;
}
