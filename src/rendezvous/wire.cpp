#include "rendezvous/wire.h"

#include "base/build.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme::rendezvous {
namespace {

constexpr std::uint32_t kMark = 0x56525254;  // "TRRV"
constexpr std::size_t kMostBuildBytes = 64;

template <typename Number>
void append_number(std::string& bytes, Number value) {
  for (std::size_t i = 0; i < sizeof(Number); ++i) bytes.push_back(static_cast<char>(value >> 8 * i & 0xff));
}

template <typename Number>
Number read_number(std::string_view bytes) {
  Number value = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    value |= static_cast<Number>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  }
  return value;
}

}  // namespace

void append_u32(std::string& bytes, std::uint32_t value) { append_number(bytes, value); }

void append_u64(std::string& bytes, std::uint64_t value) { append_number(bytes, value); }

void append_header(std::string& bytes, Kind kind, std::size_t body_bytes) {
  append_u32(bytes, kMark);
  append_u32(bytes, static_cast<std::uint32_t>(kind));
  append_u64(bytes, body_bytes);
}

void Failure::raise() const {
  switch (type) {
    case Type::usage: throw UsageError(text);
    case Type::peer: throw PeerError(text);
    case Type::timeout: throw TimeoutError(text);
    case Type::protocol: break;
  }
  throw ProtocolError(text);
}

std::string frame(Kind kind, std::string_view body) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + body.size());
  append_header(bytes, kind, body.size());
  bytes += body;
  return bytes;
}

std::string Hello::name() const {
  return rank == kVisitor ? fmt::format("a visitor ({})", who) : fmt::format("rank {} ({})", rank, who);
}

std::string Hello::own_build() { return std::string(build_name()); }

std::string body(const Hello& hello) {
  std::string bytes;
  append_u32(bytes, hello.version);
  append_u32(bytes, static_cast<std::uint32_t>(hello.build.size()));
  bytes += hello.build;
  append_u32(bytes, hello.guard);
  bytes += as_text(hello.nonce);
  append_u32(bytes, hello.rank);
  append_u32(bytes, hello.ranks);
  return bytes + printable(hello.who);
}

std::string frame(const Hello& hello) { return frame(Kind::hello, body(hello)); }

std::uint32_t guard_bits(const Guard& guard) {
  return (guard.secret ? kHasSecret : 0) | (guard.encrypt ? kEncrypts : 0);
}

std::string describe_guard(std::uint32_t bits) {
  if ((bits & kEncrypts) != 0) return "a secret, and encrypts";
  return (bits & kHasSecret) != 0 ? "a secret, and does not encrypt" : "no secret";
}

std::string body(const Challenge& challenge) {
  return std::string(as_text(challenge.nonce)) + printable(challenge.who);
}

Challenge read_challenge(std::string_view body) {
  Cursor cursor(body);
  Challenge challenge;
  challenge.nonce = read_digest(cursor.bytes(sizeof(Nonce)));
  challenge.who = printable(cursor.rest());
  return challenge;
}

Digest client_proof(const Secret& secret, std::string_view hello, std::string_view challenge) {
  return secret.prove("trireme rendezvous client", {hello, challenge});
}

Digest server_proof(const Secret& secret, std::string_view hello, std::string_view challenge) {
  return secret.prove("trireme rendezvous server", {hello, challenge});
}

Digest channel_key(const Secret& secret, std::string_view hello, std::string_view challenge) {
  return secret.prove("trireme rendezvous key", {hello, challenge});
}

std::string_view as_text(const Digest& digest) { return bytes_to_prove(digest); }

Digest read_digest(std::string_view bytes) {
  Digest digest;
  if (bytes.size() != digest.size()) throw ProtocolError("a proof of another length than proofs have");
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

std::string frame(Kind kind, const Failure& failure) {
  std::string body;
  append_u32(body, static_cast<std::uint32_t>(failure.type));
  return frame(kind, body + printable(failure.text));
}

std::string frame(Kind kind, std::uint32_t exchange, std::string_view rest) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + sizeof(exchange) + rest.size());
  append_header(bytes, kind, sizeof(exchange) + rest.size());
  append_u32(bytes, exchange);
  bytes += rest;
  return bytes;
}

std::uint32_t Cursor::u32() { return read_number<std::uint32_t>(bytes(sizeof(std::uint32_t))); }

std::uint64_t Cursor::u64() { return read_number<std::uint64_t>(bytes(sizeof(std::uint64_t))); }

std::string_view Cursor::bytes(std::size_t count) {
  if (count > rest_.size()) throw ProtocolError("a message is shorter than it has to be");
  const std::string_view taken = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return taken;
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMostBytes = 8000;
  std::string clean(text.substr(0, kMostBytes));
  std::replace_if(
      clean.begin(), clean.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return clean;
}

Hello read_hello(std::string_view body) {
  Cursor cursor(body);
  Hello hello;
  hello.version = cursor.u32();
  hello.build = "a build without a name";
  if (hello.version < 2) return hello;
  const std::uint32_t length = cursor.u32();
  if (length > kMostBuildBytes) throw ProtocolError("the name of a build that is longer than any");
  hello.build = printable(cursor.bytes(length));
  if (hello.version != kVersion) return hello;  // The rest may mean anything.
  hello.guard = cursor.u32();
  hello.nonce = read_digest(cursor.bytes(sizeof(Nonce)));
  hello.rank = cursor.u32();
  hello.ranks = cursor.u32();
  hello.who = printable(cursor.rest());
  return hello;
}

Failure read_failure(std::string_view body) {
  Cursor cursor(body);
  const std::uint32_t type = cursor.u32();
  if (type < static_cast<std::uint32_t>(Failure::Type::usage) ||
      type > static_cast<std::uint32_t>(Failure::Type::protocol)) {
    throw ProtocolError(fmt::format("a failure of unknown type {}", type));
  }
  return {static_cast<Failure::Type>(type), printable(cursor.rest())};
}

std::vector<std::string> read_blobs(std::string_view body, std::uint32_t exchange, int ranks) {
  Cursor cursor(body);
  if (cursor.u32() != exchange) throw ProtocolError("the answer is to another exchange");
  if (cursor.u32() != static_cast<std::uint32_t>(ranks)) throw ProtocolError("the answer has another number of ranks");
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(ranks));
  for (std::uint64_t& length : lengths) length = cursor.u64();
  std::vector<std::string> blobs;
  blobs.reserve(lengths.size());
  for (const std::uint64_t length : lengths) blobs.emplace_back(cursor.bytes(length));
  if (!cursor.rest().empty()) throw ProtocolError("the answer is longer than it says");
  return blobs;
}

std::optional<FrameReader::Frame> FrameReader::take(std::string_view& bytes) {
  if (header_.size() < kHeaderBytes) {
    const std::size_t count = std::min(bytes.size(), kHeaderBytes - header_.size());
    header_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    // Other protocols often send less than a header, and wait: what can be seen to be wrong is, at once.
    if (header_.size() >= sizeof(kMark) && read_number<std::uint32_t>(header_) != kMark) {
      throw ProtocolError("these are no messages of a Trireme rendezvous");
    }
    if (header_.size() < kHeaderBytes) return std::nullopt;
    Cursor cursor(header_);
    cursor.u32();
    const std::uint32_t kind = cursor.u32();
    const std::uint64_t length = cursor.u64();
    if (kind < static_cast<std::uint32_t>(Kind::hello) || kind > static_cast<std::uint32_t>(Kind::proof)) {
      throw ProtocolError(fmt::format("a message of unknown kind {}", kind));
    }
    if (length > most_) {
      throw ProtocolError(fmt::format("a message that claims {} bytes, where {} are the most", length, most_));
    }
    frame_.kind = static_cast<Kind>(kind);
    missing_ = static_cast<std::size_t>(length);
  }
  const std::size_t count = std::min(bytes.size(), missing_);
  frame_.body += bytes.substr(0, count);
  bytes.remove_prefix(count);
  missing_ -= count;
  if (missing_ > 0) return std::nullopt;
  header_.clear();
  return std::exchange(frame_, {});
}

}  // namespace trireme::rendezvous
