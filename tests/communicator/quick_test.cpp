#include "communicator/start.h"
#include "trireme/algorithms.h"

#include <gtest/gtest.h>

#include <thread>

namespace trireme {
namespace {

TEST(Quick, AllreduceOnThreads) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const Algorithm& algorithm : algorithms(Collective::allreduce)) {
      if (algorithm.served || !algorithm.accepts(ranks)) continue;
      auto worlds = threads_world(ranks);
      std::vector<std::thread> threads;
      for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{10007}, std::size_t{1000003}}) {
            std::vector<float> data(n);
            for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<float>((rank + 1) * (i % 1000));
            worlds[rank].allreduce(data, Op::sum, {.algorithm = algorithm.name});
            for (std::size_t i = 0; i < n; ++i) {
              ASSERT_EQ(data[i], static_cast<float>(ranks * (ranks + 1) / 2 * (i % 1000))) << algorithm.name << " " << ranks << " " << i;
            }
          }
        });
      }
      for (auto& thread : threads) thread.join();
    }
  }
}

}  // namespace
}  // namespace trireme
