#include "cli/messages.h"

#include "rendezvous/wire.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <cstdint>

namespace trireme::cli {
namespace {

// Longer than any output that is sent at once, and than any command line.
constexpr std::uint32_t kMostBytes = 256U << 20;

}  // namespace

std::string pack(const Message& message) {
  const std::vector<std::uint8_t> body = Message::to_cbor(message);
  std::string bytes;
  bytes.reserve(sizeof(std::uint32_t) + body.size());
  rendezvous::append_u32(bytes, static_cast<std::uint32_t>(body.size()));
  bytes.append(body.begin(), body.end());
  return bytes;
}

std::optional<Message> Unpacker::next() {
  if (bytes_.size() < sizeof(std::uint32_t)) return std::nullopt;
  const std::uint32_t length = rendezvous::Cursor(bytes_).u32();
  if (length > kMostBytes) throw ProtocolError(fmt::format("a message claims to have {} bytes", length));
  if (bytes_.size() < sizeof(length) + length) return std::nullopt;
  const auto begin = bytes_.begin() + sizeof(length);
  Message message = Message::from_cbor(begin, begin + length, true, false);
  if (!message.is_object()) throw ProtocolError("a message makes no sense");
  bytes_.erase(0, sizeof(length) + length);
  return message;
}

Message to_message(const Share& share) {
  return {{"first", share.first},         {"count", share.count},   {"ranks", share.ranks}, {"command", share.command},
          {"variables", share.variables}, {"prefix", share.prefix}, {"pin", share.pin}};
}

Share to_share(const Message& message) {
  return {.first = message.at("first"),
          .count = message.at("count"),
          .ranks = message.at("ranks"),
          .command = message.at("command"),
          .variables = message.at("variables"),
          .prefix = message.at("prefix"),
          .pin = message.at("pin")};
}

Message to_message(const End& end) { return {end.rank, end.pid, end.exited, end.status, end.dumped}; }

End to_end(const Message& message) {
  return {.rank = message.at(0),
          .pid = message.at(1),
          .exited = message.at(2),
          .status = message.at(3),
          .dumped = message.at(4)};
}

}  // namespace trireme::cli
