#include "cli/messages.h"

#include "rendezvous/wire.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <cstdint>

namespace trireme::cli {
namespace {

// Longer than any output that is sent at once, and than any command line.
constexpr std::uint32_t kMostBytes = 256U << 20;

// What messages are never made of is refused before they are read. A reader of CBOR calls itself for what is inside
// another, so bytes that say nothing but that more is inside would use up its stack; and fractions may be beyond any
// number that they are to be.
class Sense final : public nlohmann::json_sax<Message> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return false; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ <= kMostDepth; }
  bool start_array(std::size_t) override { return ++depth_ <= kMostDepth; }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr int kMostDepth = 16;

  bool leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
};

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
  Sense sense;
  if (!Message::sax_parse(begin, begin + length, &sense, Message::input_format_t::cbor)) {
    throw ProtocolError("a message makes no sense");
  }
  Message message = Message::from_cbor(begin, begin + length);
  if (!message.is_object()) throw ProtocolError("a message makes no sense");
  bytes_.erase(0, sizeof(length) + length);
  return message;
}

std::chrono::nanoseconds to_time(const Message& message) {
  constexpr std::chrono::nanoseconds kMost = std::chrono::hours(24 * 365 * 100);
  const std::chrono::nanoseconds time(message.get<std::int64_t>());
  if (time < -kMost || time > kMost) throw ProtocolError("a time is beyond reason");
  return time;
}

Message to_message(const Share& share) {
  return {{"first", share.first},         {"count", share.count},   {"ranks", share.ranks}, {"command", share.command},
          {"variables", share.variables}, {"prefix", share.prefix}, {"pin", share.pin},     {"report", share.report}};
}

Share to_share(const Message& message) {
  return {.first = message.at("first"),
          .count = message.at("count"),
          .ranks = message.at("ranks"),
          .command = message.at("command"),
          .variables = message.at("variables"),
          .prefix = message.at("prefix"),
          .pin = message.at("pin"),
          .report = message.at("report")};
}

Message to_message(const Record& record) {
  std::uint64_t call[2] = {};
  record.call.pack(call);
  return {record.number,
          record.context,
          record.sequence,
          call[0],
          call[1],
          record.begun.count(),
          record.ended ? Message(record.ended->count()) : Message(),
          record.timed};
}

Record to_record(const Message& message) {
  const std::uint64_t call[2] = {message.at(3), message.at(4)};
  Record record{.number = message.at(0),
                .context = message.at(1),
                .sequence = message.at(2),
                .call = Call::unpack(call),
                .begun = to_time(message.at(5)),
                .timed = message.at(7),
                .ended = {}};
  if (!message.at(6).is_null()) record.ended = to_time(message.at(6));
  return record;
}

Message to_message(const Recorded& recorded) {
  Message recent = Message::array();
  for (const Record& record : recorded.recent) recent.push_back(to_message(record));
  Message records = Message::array();
  for (const Record& record : recorded.records) records.push_back(to_message(record));
  return {{"rank", recorded.rank}, {"recent", recent}, {"records", records}, {"blamed", recorded.blamed}};
}

Recorded to_recorded(const Message& message) {
  Recorded recorded{.rank = message.at("rank")};
  for (const Message& one : message.at("recent")) recorded.recent.push_back(to_record(one));
  if (recorded.recent.size() > kRecent) {
    throw ProtocolError(fmt::format("it tells of {} operations at once", recorded.recent.size()));
  }
  for (const Message& one : message.at("records")) recorded.records.push_back(to_record(one));
  message.at("blamed").get_to(recorded.blamed);
  return recorded;
}

Message to_message(const Alive& alive) { return {alive.rank, alive.pid, alive.stopped_by}; }

Alive to_alive(const Message& message) {
  return {.rank = message.at(0), .pid = message.at(1), .stopped_by = message.at(2)};
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
