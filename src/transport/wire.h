// What TCP carries: fixed records in the byte order of the machine, which must be little-endian.
//
// A connection begins with hellos:
//
//   dialler                    who was dialled
//   hello                  ->
//                          <-  challenge         only where the job has a secret
//   proof                  ->                    likewise
//                          <-  answer            with its own proof; or: refusal
//
// After that, each way is a row of headers, each with its payload behind it, up to a goodbye. A byte stream that ends
// without one was cut off.
//
// A payload may have some bytes before and behind it that mean nothing. They are there for processors (Zen 3 and later)
// that copy 16 times slower if the destination lies 1 to 31 bytes further into a page than the source. The kernel copies
// the stream to and from pages of its own, and as a rule begins a page with a message. So where each message is a multiple
// of 32 bytes long, and its payload begins as far into 32 bytes as in memory, it is copied fast if it lies in one stretch,
// and so is what is received to memory that begins alike.
#pragma once

#include "base/build.h"
#include "base/secret.h"
#include "transport/transport.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace trireme::transport::wire {

static_assert(std::endian::native == std::endian::little);

/// No message is longer; a header that claims more is not a header.
inline constexpr std::size_t kMostBytes = std::size_t{1} << 30;

inline constexpr std::uint64_t kMagic = 0x00454d4552495254;  // "TRIREME"
inline constexpr std::uint32_t kVersion = 4;

enum class Stage : std::uint32_t { hello = 1, challenge, proof, answer, refusal };

/// What a rank has been told of strangers, as bits.
inline constexpr std::uint32_t kHasSecret = 1;
inline constexpr std::uint32_t kEncrypts = 2;

using BuildName = std::array<char, 48>;

inline BuildName own_build() {
  BuildName name{};
  std::ranges::copy(build_name().substr(0, name.size() - 1), name.begin());
  return name;
}

/// Who is at the other end of a connection. All up to the build stays where it is in all versions.
struct Hello {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t guard = 0;  ///< kHasSecret, kEncrypts
  BuildName build = own_build();
  Stage stage = Stage::hello;
  std::uint32_t connection = 0;  ///< which of the pair's
  std::uint64_t job = 0;
  std::uint32_t from = 0;  ///< the sender's rank
  std::uint32_t to = 0;    ///< the rank it believes to talk to
  std::uint32_t ranks = 0;
  std::uint32_t connections = 0;  ///< of each pair
  Nonce nonce{};                  ///< of a hello and a challenge
  Digest proof{};                 ///< of a proof and an answer

  bool operator==(const Hello&) const = default;
};

enum class Kind : std::uint32_t {
  message = 0x47534d54,  // "TMSG"
  goodbye = 0x45594254,  // "TBYE"
};

/// Messages are a multiple of this long.
inline constexpr std::size_t kGrain = 32;

struct Header {
  Kind kind = Kind::message;
  std::uint16_t lead = 0;   ///< bytes between header and payload, less than kGrain
  std::uint16_t tail = 0;   ///< bytes behind the payload, likewise
  std::uint64_t bytes = 0;  ///< of the payload
  Envelope envelope = {};
};

static_assert(std::is_trivially_copyable_v<Hello> && sizeof(Hello) == 160 && offsetof(Hello, stage) == 64);
static_assert(std::is_trivially_copyable_v<Header> && sizeof(Header) == 48 && offsetof(Header, envelope) == 16);
static_assert(std::has_unique_object_representations_v<Hello> && std::has_unique_object_representations_v<Header>);

inline bool makes_sense(const Header& header) {
  if (header.kind == Kind::goodbye) return header.bytes == 0 && header.lead == 0 && header.tail == 0;
  return header.kind == Kind::message && header.bytes <= kMostBytes && header.lead < kGrain && header.tail < kGrain;
}

}  // namespace trireme::transport::wire
