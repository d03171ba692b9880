// The lengths go first, so that every rank knows what to make room for; then the bytes, in one collective.
#include "trireme/objects.h"

#include <cstdint>
#include <numeric>

namespace trireme {

std::vector<std::string> all_gather_object(Communicator& world, const std::string& mine) {
  std::vector<std::int64_t> lengths(world.ranks());
  world.allgather(std::vector{static_cast<std::int64_t>(mine.size())}, lengths);
  const std::vector<std::size_t> counts(lengths.begin(), lengths.end());

  std::string joined(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  world.allgather(ConstBuffer(mine.data(), mine.size(), Dtype::u8), Buffer(joined.data(), joined.size(), Dtype::u8),
                  counts);
  std::vector<std::string> objects;
  objects.reserve(counts.size());
  std::size_t begin = 0;
  for (const std::size_t count : counts) {
    objects.push_back(joined.substr(begin, count));
    begin += count;
  }
  return objects;
}

void broadcast_object(Communicator& world, std::string& object, int root) {
  std::vector<std::int64_t> length = {static_cast<std::int64_t>(object.size())};
  world.broadcast(length, root);
  object.resize(static_cast<std::size_t>(length.front()));
  world.broadcast(Buffer(object.data(), object.size(), Dtype::u8), root);
}

}  // namespace trireme
