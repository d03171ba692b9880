// What a rank does that can't go on.
#pragma once

#include "trireme/communicator.h"

#include <string>

namespace trireme::detail {

/// All ranks hear of it; without that, they would wait for this one.
[[noreturn]] inline void give_up(Communicator ranks, const std::string& why) {
  ranks.abort(why);
  throw UsageError(why);
}

}  // namespace trireme::detail
