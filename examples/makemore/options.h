// What the user of makemore may set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace makemore {

struct Options {
  std::int64_t steps = 200;
  std::int64_t batch = 32;  ///< of each rank
  std::int64_t hidden = 64;
  std::string text;
  std::uint64_t seed = 2147483647;
  double rate = 0.1;
  std::size_t bucket_bytes = 0;  ///< 0: as DistributedDataParallel has it
  bool check = false;
  std::string record;  ///< a folder; empty: nothing is recorded
  bool quiet = false;
};

/// Nothing: all is well. A number: the exit status, and what there was to say has been said.
std::optional<int> read_options(int count, char** arguments, Options& options);

}  // namespace makemore
