// The smallest program: every rank says who it is, and all add up their numbers.
//   trireme run -n 4 build/examples/hello
#include "trireme/communicator.h"

#include <cstdio>
#include <vector>

int main() {
  try {
    trireme::Communicator world = trireme::init();
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(world.rank() + 1) * static_cast<float>(i);
    }
    world.allreduce(values);

    // 1 + 2 + ... + ranks, times i.
    const auto factor = static_cast<float>(world.ranks() * (world.ranks() + 1) / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != factor * static_cast<float>(i)) {
        std::fprintf(stderr, "rank %d: element %zu is %g, not %g\n", world.rank(), i, values[i],
                     factor * static_cast<float>(i));
        return 1;
      }
    }
    std::printf("rank %d of %d: the sum of %zu elements is right\n", world.rank(), world.ranks(), values.size());
    return 0;
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "hello: %s\n", error.what());
    return 1;
  }
}
