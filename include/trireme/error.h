// Errors that Trireme throws. The library never prints, exits or aborts: it throws one of these, and the caller
// decides.
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

/// A rank is gone: the message says which, and how that was noticed.
class PeerError : public Error {
 public:
  using Error::Error;
};

/// A deadline passed: the message says what was waited for, and who is missing.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// A peer sent bytes that make no sense.
class ProtocolError : public Error {
 public:
  using Error::Error;
};

/// The system refused something: the message says what, and its reason.
class SystemError : public Error {
 public:
  using Error::Error;
};

}  // namespace trireme
