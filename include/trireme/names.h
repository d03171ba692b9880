// Helping a user who mistyped a name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) from name; empty if none is near.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

}  // namespace trireme
