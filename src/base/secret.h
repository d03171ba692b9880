// A job's secret, and how the two ends of a connection prove to each other that both have it.
//
// Each end says a fresh number, and then proves that it has the secret by a code over its role and all that was said.
// So a proof can't be used again, nor at the other end, nor for another rank; and who listens learns nothing of the
// secret, if it is as long as it has to be.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

namespace trireme {

/// Of HMAC-SHA256.
using Digest = std::array<std::byte, 32>;

/// A number that is never used again.
using Nonce = std::array<std::byte, 32>;
Nonce fresh_nonce();

class Secret {
 public:
  /// None: strangers are not kept out.
  Secret() = default;

  /// As people and launchers pass it on: any text of 16 characters or more. Throws UsageError if it is shorter.
  explicit Secret(std::string text);

  /// One of 32 random bytes, in hexadecimal digits.
  static Secret make();

  explicit operator bool() const { return !text_.empty(); }
  const std::string& text() const { return text_; }

  /// A code that only who has the secret can make, over a role (which use, which end) and what was said, part by part.
  Digest prove(std::string_view role, std::initializer_list<std::string_view> said) const;

 private:
  std::string text_;
};

/// Takes the same time wherever they differ.
bool same_digest(const Digest& one, const Digest& other);

/// The bytes of a record, to be proved.
template <typename Record>
std::string_view bytes_to_prove(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

}  // namespace trireme
