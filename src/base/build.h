// Which Trireme this is, for two that meet and can't talk.
#pragma once

#include <string_view>

namespace trireme {

/// "Trireme 0.1.0, GCC 12.2.0": shorter than 48 characters.
std::string_view build_name();

}  // namespace trireme
