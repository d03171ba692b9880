// Connections grow with what programs use, not with the square of the ranks.
#include "communicator/cluster.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

namespace trireme::test {
namespace {

using namespace std::chrono_literals;

int open_sockets() {
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // as the one that lists them
    const std::filesystem::path what = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && what.string().starts_with("socket:")) ++sockets;
  }
  return sockets;
}

// The others ask meanwhile what it does: those that they need.
TEST(Connections, ARankThatIsLateMakesNoMoreOfThem) {
  constexpr int kRanks = 9;
  Cluster cluster(Way::tcp, kRanks);
  const int before = open_sockets();
  cluster.run([](Communicator& world) {
    std::vector<float> data(1000, 1);
    if (world.rank() == 5) std::this_thread::sleep_for(2s);
    world.allreduce(data, Op::sum, {.algorithm = "ring"});
    EXPECT_EQ(data.front(), world.ranks());
  });
  EXPECT_EQ(open_sockets() - before, 2 * kRanks);  // both ends of each of a ring
}

}  // namespace
}  // namespace trireme::test
