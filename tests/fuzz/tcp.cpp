// Whatever bytes come by TCP, the receiver gives the messages that are in them, or says what is wrong: it never writes
// beyond a place, and sets aside no more memory than a few times what has come.
//
// The first byte says in what parts the others come, and where messages are placed.
#include "require.h"
#include "transport/tcp_handshake.h"
#include "transport/tcp_receiver.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace trireme::transport {
namespace {

struct Message {
  Envelope envelope;
  std::vector<std::byte> bytes;
  bool operator==(const Message&) const = default;
};

// The same stream, read the simplest way.
std::vector<Message> messages_in(std::span<const std::byte> stream, bool& garbled) {
  std::vector<Message> messages;
  while (stream.size() >= sizeof(wire::Header)) {
    wire::Header header;
    std::memcpy(&header, stream.data(), sizeof header);
    stream = stream.subspan(sizeof header);
    garbled = !wire::makes_sense(header);
    if (garbled || header.kind == wire::Kind::goodbye || header.lead + header.bytes + header.tail > stream.size())
      break;
    const std::span payload = stream.subspan(header.lead, header.bytes);
    messages.push_back({header.envelope, {payload.begin(), payload.end()}});
    stream = stream.subspan(header.lead + header.bytes + header.tail);
  }
  return messages;
}

class Owner final : public Transport {
 public:
  explicit Owner(TcpBuffers& buffers) : buffers_(buffers) {}
  void post(Outgoing& /*outgoing*/) override {}
  bool progress() override { return false; }
  int descriptor() const override { return -1; }
  void close() override {}

 protected:
  void release(Incoming& incoming) override {
    buffers_.give_back(reinterpret_cast<TcpBuffers::Buffer*>(incoming.token));
  }
  void answer(Incoming& /*incoming*/) override {}

 private:
  TcpBuffers& buffers_;
};

class Collector final : public Inbox {
 public:
  explicit Collector(unsigned style) : style_(style) {}

  std::size_t place(int, const Envelope&, std::size_t bytes, std::span<Piece> pieces) override {
    if ((style_ >> messages.size() % 3 & 1) == 0 || bytes > 1 << 20) return 0;
    place_.assign(bytes, std::byte{0});
    const std::size_t first = bytes / 3;
    pieces[0] = {place_.data(), first};
    pieces[1] = {place_.data() + first, bytes - first};
    return 2;
  }

  void arrived(int, const Envelope& envelope, const Incoming& incoming) override {
    const std::byte* data = incoming.placed ? place_.data() : incoming.data;
    messages.push_back({envelope, {data, data + incoming.bytes}});
    Incoming(incoming).release();
  }

  void sent(Outgoing&, bool) override {}
  void lost(int, const std::string&) override {}
  void closed(int) override {}

  std::vector<Message> messages;

 private:
  unsigned style_;
  std::vector<std::byte> place_;
};

void run(unsigned style, std::span<const std::byte> stream) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  bool garbled = false;
  const std::vector<Message> expected = messages_in(stream, garbled);
  {
    TcpBuffers buffers;
    Owner owner(buffers);
    Collector inbox(style & 7);
    TcpReceiver receiver(1, owner, buffers);
    auto result = TcpReceiver::Result::nothing;
    const std::size_t part = std::size_t{1} << (style >> 3 & 15);
    std::size_t said = 0;
    const auto over = [&] { return result == TcpReceiver::Result::goodbye || result >= TcpReceiver::Result::broken; };
    while (!over()) {
      if (said < stream.size()) {
        const ssize_t sent = ::send(ends[0], stream.data() + said, std::min(part, stream.size() - said), MSG_NOSIGNAL);
        said += sent > 0 ? static_cast<std::size_t>(sent) : 0;
        if (said == stream.size()) ::shutdown(ends[0], SHUT_WR);
      } else if (stream.empty()) {
        ::shutdown(ends[0], SHUT_WR);
      }
      result = receiver.receive(ends[1], inbox);
    }
    require(inbox.messages == expected);
    require(garbled == (result == TcpReceiver::Result::garbled));
    require(result == TcpReceiver::Result::goodbye || !receiver.why().empty());
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

// A hello of any bytes is compared, described and proved without harm.
void meet(std::span<const std::byte> bytes) {
  wire::Hello hello;
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof hello));
  const std::string why = why_not({}, hello);
  require(why.empty() == (hello.version == wire::kVersion && hello.guard == 0));
  require(!Transcript{.hello = hello, .challenge = hello}.proved(Secret("sixteen letters!"), hello));
}

}  // namespace
}  // namespace trireme::transport

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  trireme::transport::run(data[0], bytes);
  trireme::transport::meet(bytes);
  return 0;
}
