#include "base/secret.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <cstdint>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <utility>

namespace trireme {
namespace {

constexpr std::size_t kFewestCharacters = 16;

// Each part with its length before it, so that no other parts give the same bytes.
void append(std::string& bytes, std::string_view part) {
  for (std::size_t i = 0; i < sizeof(std::uint64_t); ++i)
    bytes.push_back(static_cast<char>(part.size() >> 8 * i & 0xff));
  bytes += part;
}

}  // namespace

Nonce fresh_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1) {
    throw SystemError("this system has no random numbers to keep strangers out with");
  }
  return nonce;
}

Secret::Secret(std::string text) : text_(std::move(text)) {
  if (text_.size() >= kFewestCharacters) return;
  throw UsageError(fmt::format(
      "the job's secret has {} characters, which can be guessed: give {} or more, as 'openssl rand -hex 32' makes them",
      text_.size(), kFewestCharacters));
}

Secret Secret::make() {
  std::string text;
  for (const std::byte byte : fresh_nonce()) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return Secret(std::move(text));
}

Digest Secret::prove(std::string_view role, std::initializer_list<std::string_view> said) const {
  std::string bytes;
  append(bytes, role);
  for (const std::string_view part : said) append(bytes, part);
  Digest digest{};
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), text_.data(), static_cast<int>(text_.size()),
           reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &length) == nullptr ||
      length != digest.size()) {
    throw SystemError("OpenSSL can't make an HMAC-SHA256 here");
  }
  return digest;
}

bool same_digest(const Digest& one, const Digest& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace trireme
