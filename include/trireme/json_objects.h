// JSON between ranks. Who includes this needs nlohmann-json; the rest of Trireme does not.
#pragma once

#include "trireme/objects.h"

#include <nlohmann/json.hpp>

#include <concepts>
#include <string>
#include <vector>

namespace trireme {

template <typename T>
concept Json = std::same_as<T, nlohmann::json> || std::same_as<T, nlohmann::ordered_json>;

namespace detail {

// CBOR and not text: numbers arrive bit for bit, and strings need not be UTF-8.
template <Json T>
std::string pack(const T& value) {
  std::string bytes;
  T::to_cbor(value, bytes);
  return bytes;
}

template <Json T>
T unpack(const std::string& bytes, int rank) {
  try {
    return T::from_cbor(bytes);
  } catch (const nlohmann::json::exception& error) {
    throw ProtocolError("rank " + std::to_string(rank) + " sent something else than JSON: " + error.what());
  }
}

}  // namespace detail

/// The values of all ranks, in the order of ranks. All ranks call it.
template <Json T>
std::vector<T> all_gather_object(Communicator& world, const T& mine) {
  std::vector<T> values;
  for (const std::string& bytes : all_gather_object(world, detail::pack(mine))) {
    values.push_back(detail::unpack<T>(bytes, static_cast<int>(values.size())));
  }
  return values;
}

/// Every rank's `value` ends as the root's.
template <Json T>
void broadcast_object(Communicator& world, T& value, int root) {
  std::string bytes = world.rank() == root ? detail::pack(value) : std::string();
  broadcast_object(world, bytes, root);
  if (world.rank() != root) value = detail::unpack<T>(bytes, root);
}

}  // namespace trireme
