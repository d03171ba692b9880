#include "transport/tcp_handshake.h"

#include <fmt/format.h>

#include <string_view>

namespace trireme::transport {

namespace {

// Only what is printable, and ends with the field at the latest.
std::string build_of(const wire::Hello& hello) {
  std::string name;
  for (const char c : hello.build) {
    if (c == '\0') break;
    name += c >= ' ' && c <= '~' ? c : '?';
  }
  return fmt::format("{} (version {} of what TCP carries)", name.empty() ? "of a build without a name" : name,
                     hello.version);
}

const char* kind_of_guard(std::uint32_t guard) {
  if ((guard & wire::kEncrypts) != 0) return "a secret, and encrypts";
  return (guard & wire::kHasSecret) != 0 ? "a secret, and does not encrypt" : "no secret";
}

}  // namespace

std::uint32_t guard_bits(const Guard& guard) {
  return (guard.secret ? wire::kHasSecret : 0) | (guard.encrypt ? wire::kEncrypts : 0);
}

std::string why_not(const wire::Hello& own, const wire::Hello& other) {
  if (other.version != own.version) {
    return fmt::format("it is {}, and this rank {}: build all ranks with the same Trireme", build_of(other),
                       build_of(own));
  }
  if (other.guard != own.guard) {
    return fmt::format(
        "it has {}, and this rank {}: give all ranks the same TRIREME_SECRET (or TRIREME_SECRET_FILE) and "
        "TRIREME_ENCRYPT, or none of them any",
        kind_of_guard(other.guard), kind_of_guard(own.guard));
  }
  return {};
}

wire::Hello reply(const wire::Hello& other, wire::Stage stage, const Guard& guard) {
  return {.guard = guard_bits(guard),
          .stage = stage,
          .connection = other.connection,
          .job = other.job,
          .from = other.to,
          .to = other.from,
          .ranks = other.ranks,
          .connections = other.connections};
}

Digest Transcript::prove(const Secret& secret, wire::Stage stage) const {
  if (!secret) return {};
  const std::string_view role = stage == wire::Stage::proof ? "trireme tcp dialler" : "trireme tcp dialled";
  return secret.prove(role, {bytes_to_prove(hello), bytes_to_prove(challenge)});
}

bool Transcript::proved(const Secret& secret, const wire::Hello& said) const {
  return same_digest(prove(secret, said.stage), said.proof);
}

Digest Transcript::key(const Secret& secret) const {
  return secret.prove("trireme tcp key", {bytes_to_prove(hello), bytes_to_prove(challenge)});
}

}  // namespace trireme::transport
