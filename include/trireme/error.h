// Errors that Trireme throws. The library never prints, exits or aborts: it throws one of these, and the caller decides.
#pragma once

#include <stdexcept>

namespace trireme {

/// The base of everything that Trireme throws on purpose.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller asked for something that can't be: the message says what, and what would do.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace trireme
