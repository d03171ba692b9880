// A rank of two, which time small allreduces with the flight recorder and without it, in turn: its cost where it is paid.
// Started by `trireme run`, whose board both see. Prints the medians, as JSON, on rank 0.
//   recorder_cost BYTES PAIRS
#include "communicator/board.h"
#include "trireme/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  trireme::Communicator world = trireme::init();
  const auto board = trireme::Board::inherited(world.ranks());
  if (!board) {
    fmt::print(stderr, "recorder_cost: start it with 'trireme run -n 2'\n");
    return 2;
  }
  trireme::Window window = world.window(std::strtoull(argv[1], nullptr, 10));
  const int pairs = std::atoi(argv[2]);  // NOLINT(cert-err34-c): 0 is none
  constexpr int kCalls = 200;
  constexpr int kBefore = 64;  // until all ranks have seen the switch, and it is a stream of calls again
  const auto nanoseconds_each = [&](bool recording) {
    if (world.rank() == 0) board->set_recording(recording);
    for (int i = 0; i < kBefore; ++i) world.allreduce(window.as<float>());
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) world.allreduce(window.as<float>());
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kCalls;
  };
  std::vector<double> with, without, more;
  for (int pair = 0; pair < pairs; ++pair) {
    const bool first = pair % 2 == 0;  // which of the two comes first must not matter
    const double one = nanoseconds_each(first);
    const double other = nanoseconds_each(!first);
    with.push_back(first ? one : other);
    without.push_back(first ? other : one);
    more.push_back(with.back() - without.back());
  }
  if (world.rank() != 0) return 0;
  fmt::print("{{\"with_ns\": {:.1f}, \"without_ns\": {:.1f}, \"more_ns\": {:.2f}}}\n", median(with), median(without),
             median(more));
}
