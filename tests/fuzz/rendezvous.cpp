// Whatever bytes come to the rendezvous, they are frames whose parts can be read, or a ProtocolError.
//
// The first byte says in what parts the others come.
#include "rendezvous/socket.h"
#include "rendezvous/wire.h"
#include "require.h"
#include "trireme/error.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::rendezvous {
namespace {

template <typename Read>
void try_to(Read&& read) {
  try {
    read();
  } catch (const ProtocolError&) {
  }
}

void read_as_anything(std::string_view body) {
  try_to([&] {
    const Hello hello = read_hello(body);
    if (hello.version != kVersion) return;
    // What is read is what was said, but for what is not printable.
    const Hello again = read_hello(rendezvous::body(hello));
    require(again.build == hello.build && again.who == hello.who && again.nonce == hello.nonce &&
            again.rank == hello.rank && again.ranks == hello.ranks && again.guard == hello.guard);
  });
  try_to([&] { require(read_failure(body).text.size() <= body.size()); });
  try_to([&] { require(read_challenge(body).who.size() <= body.size()); });
  try_to([&] { read_digest(body); });
  for (const int ranks : {1, 2, 5}) {
    try_to([&] {
      std::size_t bytes = 0;
      for (const std::string& blob : read_blobs(body, 0, ranks)) bytes += blob.size();
      require(bytes <= body.size());
    });
  }
  if (const auto address = parse_host_and_port(body)) {
    require(parse_host_and_port(format_host_and_port(address->host, address->port)).has_value());
  }
}

void run(std::uint8_t style, std::string_view bytes) {
  FrameReader reader;
  reader.expect_at_most(std::size_t{1} << (style & 31));
  const std::size_t part = std::size_t{1} << (style >> 5);
  try_to([&] {
    while (!bytes.empty()) {
      std::string_view some = bytes.substr(0, part);
      bytes.remove_prefix(some.size());
      while (!some.empty()) {
        if (const auto frame = reader.take(some)) read_as_anything(frame->body);
      }
    }
  });
}

}  // namespace
}  // namespace trireme::rendezvous

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  trireme::rendezvous::run(data[0], bytes);
  trireme::rendezvous::read_as_anything(bytes);
  return 0;
}
