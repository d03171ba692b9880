// Two ends of a socket that have the same key, or not.
#include "base/tls.h"

#include "trireme/error.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace trireme {
namespace {

class TlsPair : public ::testing::Test {
 protected:
  TlsPair() {
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends_.data()), 0);
    key_.fill(std::byte{7});
  }
  ~TlsPair() override {
    for (const int end : ends_) ::close(end);
  }

  // Whether both have finished; what one of them throws is thrown here.
  static bool shake(Tls& client, Tls& server) {
    for (int turn = 0; turn < 10; ++turn) {
      const bool client_done = client.shake();
      if (server.shake() && client_done) return true;
    }
    return false;
  }

  std::array<int, 2> ends_{};
  Digest key_{};
};

TEST_F(TlsPair, CarriesBytesBothWaysInWhateverParts) {
  Tls client(ends_[0], Tls::Role::client, key_);
  Tls server(ends_[1], Tls::Role::server, key_);
  ASSERT_TRUE(shake(client, server));
  std::string sent(3'000'000, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 >> 3);
  for (auto [from, to] : {std::pair{&client, &server}, std::pair{&server, &client}}) {
    std::string got;
    std::size_t done = 0;
    bool was_full = false;
    while (got.size() < sent.size()) {
      if (done < sent.size()) {
        const ssize_t count = from->write(sent.data() + done, sent.size() - done);
        if (count < 0) {
          ASSERT_EQ(errno, EAGAIN);
          EXPECT_FALSE(from->waits_to_read());
          was_full = true;
        }
        done += count > 0 ? count : 0;
      }
      std::array<char, 10'007> part{};
      const ssize_t count = to->read(part.data(), part.size());
      if (count < 0) {
        ASSERT_EQ(errno, EAGAIN);
        EXPECT_FALSE(to->unread());
      }
      if (count > 0) got.append(part.data(), static_cast<std::size_t>(count));
    }
    EXPECT_TRUE(was_full);
    EXPECT_EQ(got, sent);
  }
}

TEST_F(TlsPair, WaitsToReadBeforeKeysAreExchanged) {
  Tls client(ends_[0], Tls::Role::client, key_);
  EXPECT_EQ(client.write("x", 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(client.waits_to_read());
}

TEST_F(TlsPair, NeedsTheSameKey) {
  Tls client(ends_[0], Tls::Role::client, key_);
  key_[31] = std::byte{8};
  Tls server(ends_[1], Tls::Role::server, key_);
  EXPECT_THROW(shake(client, server), PeerError);
}

TEST_F(TlsPair, SaysWhyKeysAreNotExchanged) {
  const auto message_after = [&](const std::string& said) {
    Tls client(ends_[0], Tls::Role::client, key_);
    EXPECT_FALSE(client.shake());
    EXPECT_EQ(::send(ends_[1], said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
    if (said.empty()) ::shutdown(ends_[1], SHUT_WR);
    try {
      client.shake();
    } catch (const PeerError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(message_after("220 mail.example ESMTP ready\r\n"),
            "keys could not be exchanged: what came does not fit this connection's key");
  EXPECT_EQ(message_after(""), "keys could not be exchanged: the other end hung up");
}

TEST_F(TlsPair, TakesNothingThatWasChangedOnTheWay) {
  Tls client(ends_[0], Tls::Role::client, key_);
  Tls server(ends_[1], Tls::Role::server, key_);
  ASSERT_TRUE(shake(client, server));
  ASSERT_EQ(client.write("the sum is 42", 13), 13);
  std::array<char, 200> wire{};
  const ssize_t bytes = ::recv(ends_[1], wire.data(), wire.size(), 0);
  EXPECT_EQ(std::string(wire.data(), static_cast<std::size_t>(bytes)).find("sum"), std::string::npos);
  wire[10] ^= 1;
  ASSERT_EQ(::send(ends_[0], wire.data(), static_cast<std::size_t>(bytes), 0), bytes);
  std::array<char, 100> got{};
  EXPECT_EQ(server.read(got.data(), got.size()), -1);
  EXPECT_EQ(errno, EBADMSG);
}

TEST_F(TlsPair, SeesTheEnd) {
  Tls client(ends_[0], Tls::Role::client, key_);
  Tls server(ends_[1], Tls::Role::server, key_);
  ASSERT_TRUE(shake(client, server));
  ASSERT_EQ(client.write("bye", 3), 3);
  ::shutdown(ends_[0], SHUT_WR);
  std::array<char, 100> got{};
  EXPECT_EQ(server.read(got.data(), got.size()), 3);
  EXPECT_EQ(server.read(got.data(), got.size()), 0);
}

}  // namespace
}  // namespace trireme
