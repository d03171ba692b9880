// What the two ends of a new connection say to each other, without sockets: who they are, and that both have the job's
// secret. See wire.h for the order.
#pragma once

#include "base/guard.h"
#include "transport/wire.h"

#include <string>

namespace trireme::transport {

/// What a guard says of itself in a hello.
std::uint32_t guard_bits(const Guard& guard);

/// Why two that have said these can't talk, though both are of Trireme; empty: they can. `other` comes from the
/// network.
std::string why_not(const wire::Hello& own, const wire::Hello& other);

/// A hello as `role` says it in answer to `other`: from it, to it, and about the same connection.
wire::Hello reply(const wire::Hello& other, wire::Stage stage, const Guard& guard);

/// What was said so far by both, which each end proves the secret over.
struct Transcript {
  wire::Hello hello;      ///< the dialler's
  wire::Hello challenge;  ///< its answer; all zero but for what both know, where there is no secret

  Digest prove(const Secret& secret, wire::Stage stage) const;

  /// Whether the proof in `said` is right for its stage. Without a secret, there is none.
  bool proved(const Secret& secret, const wire::Hello& said) const;

  /// A key for this connection alone.
  Digest key(const Secret& secret) const;
};

}  // namespace trireme::transport
