// Asking what a call complains of.
#pragma once

#include "trireme/error.h"

#include <string>

namespace trireme::test {

/// The message of the UsageError that `call` throws; "nothing was thrown" if it returns. Other exceptions pass.
template <typename Call>
std::string usage_error(Call&& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace trireme::test
