// Whatever bytes an agent or a launcher sends, they are messages that can be read, or an error.
//
// The first byte says in what parts the others come.
#include "cli/messages.h"
#include "require.h"
#include "trireme/error.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace trireme::cli {
namespace {

template <typename Read>
void try_to(Read&& read) {
  try {
    read();
  } catch (const Message::exception&) {
  } catch (const ProtocolError&) {
  }
}

void read_as_anything(const Message& message) {
  Unpacker unpacker;
  unpacker.add(pack(message));
  const auto again = unpacker.next();
  require(again && pack(*again) == pack(message) && !unpacker.next());
  for (const Message& part : message) {
    try_to([&] { to_share(part); });
    try_to([&] { to_end(part); });
    try_to([&] {
      const Record record = to_record(part);
      require(!record.describe().empty() &&
              pack(to_message(record)) == pack(to_message(to_record(to_message(record)))));
    });
    try_to([&] {
      const Recorded recorded = to_recorded(part);
      for (const Record& record : recorded.records) require(!record.describe().empty());
      require(pack(to_message(recorded)) == pack(to_message(to_recorded(to_message(recorded)))));
    });
  }
}

void run(std::uint8_t style, std::string_view bytes) {
  Unpacker unpacker;
  const std::size_t part = std::size_t{1} << (style & 15);
  try {
    while (!bytes.empty()) {
      unpacker.add(bytes.substr(0, part));
      bytes.remove_prefix(std::min(part, bytes.size()));
      while (const auto message = unpacker.next()) read_as_anything(*message);
    }
  } catch (const ProtocolError& error) {
    require(!std::string_view(error.what()).empty());
  }
}

}  // namespace
}  // namespace trireme::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  trireme::cli::run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
