// What server and clients say to each other: frames of a header (mark, kind, number of bytes; 16 bytes, little-endian)
// and a body.
//
//   client                                   server
//   hello      version, build, guard, nonce, rank, ranks, who ->
//                                         <- challenge  guard, nonce, who serves     (only where the job has a secret)
//   proof      of the secret             ->                                          (likewise)
//                                         <- welcome  who serves, its proof of the secret
//   blob       exchange, bytes           ->               (once an exchange; when all are in:)
//                                         <- blobs    exchange, ranks, bytes of each, all bytes
//   ask        exchange                  ->
//                                         <- missing  exchange, who is missing, for people
//   gave_up    failure                   ->               (ends the meeting for the others, too)
//   goodbye                              ->
//                                         <- failure  kind of error, text
//
// A visitor, who only wants to know whether the job's server is here, says hello with kVisitor for its rank, and
// nothing more comes after the welcome.
//
// A header's length is checked against what the receiver expects at most, and memory grows with the bytes that come,
// not with those that are announced.
#pragma once

#include "base/guard.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::rendezvous {

/// Goes up when server and client of different builds would misunderstand each other.
inline constexpr std::uint32_t kVersion = 3;

inline constexpr std::size_t kHeaderBytes = 16;
inline constexpr std::size_t kMostTextBytes = std::size_t{64} << 10;

enum class Kind : std::uint32_t {
  hello = 1,
  welcome,
  blob,
  blobs,
  ask,
  missing,
  gave_up,
  goodbye,
  failure,
  challenge,
  proof
};

/// An error that goes over the wire.
struct Failure {
  enum class Type : std::uint32_t { usage = 1, peer, timeout, protocol };
  Type type = Type::peer;
  std::string text;

  /// As the exception that it stands for.
  [[noreturn]] void raise() const;
};

/// In place of a rank.
inline constexpr std::uint32_t kVisitor = 0xffffffff;

/// The version and the build stay where they are in all versions.
struct Hello {
  std::uint32_t version = kVersion;
  std::string build = own_build();
  std::uint32_t guard = 0;  ///< kHasSecret, kEncrypts
  Nonce nonce{};
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  std::string who;

  /// "rank 3 (host:1234)"
  std::string name() const;

  static std::string own_build();
};

/// What a side has been told of strangers, as bits.
inline constexpr std::uint32_t kHasSecret = 1;
inline constexpr std::uint32_t kEncrypts = 2;
std::uint32_t guard_bits(const Guard& guard);

/// "a secret, and encrypts"
std::string describe_guard(std::uint32_t bits);

/// The body of a challenge: what the server says before it has proved anything.
struct Challenge {
  Nonce nonce{};
  std::string who;
};
std::string body(const Challenge& challenge);
Challenge read_challenge(std::string_view body);

/// Who proves what: the client and the server each over the bodies of hello and challenge.
Digest client_proof(const Secret& secret, std::string_view hello, std::string_view challenge);
Digest server_proof(const Secret& secret, std::string_view hello, std::string_view challenge);
/// A key for this connection alone.
Digest channel_key(const Secret& secret, std::string_view hello, std::string_view challenge);

std::string_view as_text(const Digest& digest);
Digest read_digest(std::string_view bytes);

/// A whole frame of the bytes.
std::string frame(Kind kind, std::string_view body);
std::string body(const Hello& hello);
std::string frame(const Hello& hello);
std::string frame(Kind kind, const Failure& failure);  ///< gave_up or failure
/// A frame whose body begins with the number of an exchange.
std::string frame(Kind kind, std::uint32_t exchange, std::string_view rest);

/// The header of a frame whose body is written behind it.
void append_header(std::string& bytes, Kind kind, std::size_t body_bytes);

/// The bytes of a number, least first.
void append_u32(std::string& bytes, std::uint32_t value);
void append_u64(std::string& bytes, std::uint64_t value);

/// Reads a body from its beginning. Throws ProtocolError where it is too short.
class Cursor {
 public:
  explicit Cursor(std::string_view body) : rest_(body) {}
  std::uint32_t u32();
  std::uint64_t u64();
  std::string_view bytes(std::size_t count);
  std::string_view rest() { return bytes(rest_.size()); }

 private:
  std::string_view rest_;
};

/// Texts of others are cut to a reasonable length, and what is not printable is replaced.
std::string printable(std::string_view text);

Hello read_hello(std::string_view body);
Failure read_failure(std::string_view body);

/// What each rank sent in this exchange.
std::vector<std::string> read_blobs(std::string_view body, std::uint32_t exchange, int ranks);

/// Puts frames together from bytes as they come.
class FrameReader {
 public:
  struct Frame {
    Kind kind{};
    std::string body;
  };

  /// The most bytes that a frame's body may have from the next one on.
  void expect_at_most(std::size_t body_bytes) { most_ = body_bytes; }

  /// Takes as many bytes as the frame under way can use, and removes them from `bytes`; returns the frame once it is
  /// whole. Throws ProtocolError if the bytes can't be a frame, or one that is longer than expected.
  std::optional<Frame> take(std::string_view& bytes);

 private:
  std::size_t most_ = kMostTextBytes;
  std::string header_;
  Frame frame_;
  std::size_t missing_ = 0;
};

}  // namespace trireme::rendezvous
