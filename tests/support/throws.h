// Asking what a call complains of.
#pragma once

#include "trireme/error.h"

#include <string>

namespace trireme::test {

/// The message of the `Kind` of error that `call` throws; "nothing was thrown" if it returns. Other exceptions pass.
template <typename Kind, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "nothing was thrown";
}

template <typename Call>
std::string usage_error(Call&& call) {
  return message_of<UsageError>(call);
}

template <typename Call>
std::string protocol_error(Call&& call) {
  return message_of<ProtocolError>(call);
}

}  // namespace trireme::test
