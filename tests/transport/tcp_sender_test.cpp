// How messages lie in the stream, for the sake of who copies them there and back.
#include "transport/tcp_sender.h"

#include "support/random.h"
#include "transport/party.h"
#include "transport/socket.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sys/socket.h>
#include <vector>

namespace trireme::test {
namespace {

namespace wire = transport::wire;

// Sends by a socket that keeps what was handed over at once together.
class Wire {
 public:
  Wire() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    to_ = transport::Descriptor(ends[0]);
    from_ = transport::Descriptor(ends[1]);
  }

  // What the kernel was given, part by part, until all of the message has gone out; it had so many bytes already.
  std::vector<std::vector<std::byte>> parts_of(transport::TcpSender& sender, Outgoing& outgoing, std::size_t done = 0) {
    std::vector<std::vector<std::byte>> parts;
    transport::OutgoingList sent;
    sender.post(outgoing);
    outgoing.done = done;
    const transport::TcpStream stream{to_.get(), nullptr};
    for (auto result = transport::TcpSender::Result::some; result != transport::TcpSender::Result::all;) {
      result = sender.send(stream, sent);
      EXPECT_NE(result, transport::TcpSender::Result::none) << std::strerror(errno);
      if (result == transport::TcpSender::Result::none) break;
      std::vector<std::byte> part(1 << 20);
      for (ssize_t bytes = 0; (bytes = ::recv(from_.get(), part.data(), part.size(), MSG_DONTWAIT)) > 0;) {
        parts.emplace_back(part.begin(), part.begin() + bytes);
      }
    }
    EXPECT_EQ(sent.first(), &outgoing);
    return parts;
  }

 private:
  transport::Descriptor to_, from_;
};

std::vector<std::byte> joined(const std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::byte> whole;
  for (const auto& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

TEST(TcpSender, KeepsTheStreamAlignedWithMemory) {
  Random random(1);
  std::vector<std::byte> memory = content(0, 1, 0, 200000);
  for (const std::size_t bytes : {0, 1, 4, 31, 32, 100, 4095, 4096, 4097, 20000, 65536, 150001}) {
    for (std::size_t offset = 0; offset < 40; ++offset) {
      const std::span payload = std::span(memory).subspan(offset, bytes);
      const std::vector<Piece> pieces = cut(payload, random.between(1, 3), random);
      Outgoing outgoing{.peer = 1, .envelope = {.index = 7}, .pieces = pieces};
      transport::TcpSender sender;
      sender.stay_on_host();
      const auto parts = Wire().parts_of(sender, outgoing);
      for (const auto& part : parts) {
        EXPECT_EQ(part.size() % wire::kGrain, 0) << bytes << " bytes at " << offset;
        EXPECT_LE(part.size(), 65464);
      }
      const std::vector<std::byte> whole = joined(parts);
      wire::Header header;
      ASSERT_GE(whole.size(), sizeof header);
      std::memcpy(&header, whole.data(), sizeof header);
      EXPECT_TRUE(wire::makes_sense(header));
      EXPECT_EQ(header.bytes, bytes);
      ASSERT_EQ(whole.size(), sizeof header + header.lead + bytes + header.tail);
      const std::size_t begin = sizeof header + header.lead;
      EXPECT_TRUE(same_bytes(std::span(whole).subspan(begin, bytes), payload)) << bytes << " bytes at " << offset;
      if (bytes >= 4096) {
        EXPECT_EQ((begin - reinterpret_cast<std::uintptr_t>(payload.data())) % wire::kGrain, 0)
            << bytes << " bytes at " << offset;
      }
    }
  }
}

// Whatever the kernel has taken so far, the rest follows, and ends as if it had come in one go.
TEST(TcpSender, GoesOnFromAnyByte) {
  std::vector<std::byte> memory = content(0, 1, 0, 5000);
  const std::vector<Piece> pieces{{memory.data() + 3, 40}, {memory.data() + 43, 0}, {memory.data() + 100, 4100}};
  Outgoing outgoing{.peer = 1, .envelope = {.index = 7}, .pieces = pieces};
  transport::TcpSender sender;
  Wire wire;
  const std::vector<std::byte> whole = joined(wire.parts_of(sender, outgoing));
  ASSERT_EQ(whole.size() % wire::kGrain, 0);
  sender.stay_on_host();
  for (std::size_t done = 0; done < whole.size(); ++done) {
    const std::vector<std::byte> rest = joined(wire.parts_of(sender, outgoing, done));
    ASSERT_TRUE(same_bytes(rest, std::span(whole).subspan(done))) << "from byte " << done;
  }
}

TEST(TcpSender, MakesUpForWhatTheKernelCutShort) {
  std::vector<std::byte> memory(300000);
  const Piece piece{memory.data(), memory.size()};
  Outgoing outgoing{.peer = 1, .envelope = {}, .pieces = {&piece, 1}};
  transport::TcpSender sender;
  sender.stay_on_host();
  for (const std::size_t done : {1, 31, 33, 70000, 131071}) {
    std::size_t at = done;
    for (const auto& part : Wire().parts_of(sender, outgoing, done)) {
      at += part.size();
      EXPECT_EQ(at % wire::kGrain, 0);
    }
  }
}

}  // namespace
}  // namespace trireme::test
