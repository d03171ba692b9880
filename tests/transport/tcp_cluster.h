// Ranks over TCP, and a stranger who talks to them byte by byte.
#pragma once

#include "transport/cluster.h"
#include "transport/socket.h"
#include "transport/tcp.h"
#include "transport/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <utility>
#include <vector>

namespace trireme::test {

inline constexpr std::uint64_t kJob = 0x1234567890abcdef;

/// A job with a secret, which every call makes the same.
inline Guard guarded(bool encrypt = false, const std::string& secret = "sixteen letters or more") {
  return {.secret = Secret(secret), .encrypt = encrypt};
}

/// Transports for the inboxes that have met.
inline Transports over_tcp(std::span<transport::Inbox* const> inboxes, int connections,
                           const std::string& bind_address = "127.0.0.1", const Guard& guard = {}) {
  const int ranks = static_cast<int>(inboxes.size());
  Transports transports;
  std::vector<transport::Tcp*> all;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    auto tcp = std::make_unique<transport::Tcp>(rank, ranks, *inboxes[rank], bind_address, kJob, connections, guard);
    addresses.push_back(tcp->address());
    all.push_back(tcp.get());
    transports.push_back(std::move(tcp));
  }
  for (transport::Tcp* tcp : all) tcp->meet(addresses);
  return transports;
}

class TcpCluster : public Cluster {
 public:
  explicit TcpCluster(int ranks, int connections = 1, const std::string& bind_address = "127.0.0.1",
                      const Guard& guard = {})
      : Cluster({.name = "tcp",
                 .make =
                     [&](std::span<transport::Inbox* const> inboxes) {
                       return over_tcp(inboxes, connections, bind_address, guard);
                     }},
                ranks) {}

  transport::Tcp& tcp(int rank) { return dynamic_cast<transport::Tcp&>((*this)[rank].transport()); }
  transport::TcpCounts counts(int rank) { return tcp(rank).counts(); }

  /// Lets all ranks talk until all is said.
  bool until_sent(Party& to, std::size_t arrivals) {
    return until([&] {
      for (const auto& party : *this) {
        if (party->under_way() > 0) return false;
      }
      return to.arrivals.size() == arrivals;
    });
  }
};

/// Whether a text has these words in it.
inline ::testing::AssertionResult says(const std::string& text, const std::string& words) {
  if (text.find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << '"' << words << "\" is not in \"" << text << '"';
}

/// A hello as `from` says it to `to`.
inline transport::wire::Hello hello(int from, int to, int ranks) {
  return {.connection = 0,
          .job = kJob,
          .from = static_cast<std::uint32_t>(from),
          .to = static_cast<std::uint32_t>(to),
          .ranks = static_cast<std::uint32_t>(ranks),
          .connections = 1};
}

template <typename Record>
std::string bytes_of(const Record& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

/// A connection that speaks for itself.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    const auto where = transport::Address::parse(address);
    socket_ = transport::Descriptor(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket_.get(), where.get(), where.bytes()), 0);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  void say(std::string_view bytes) const {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_EQ(sent, static_cast<ssize_t>(bytes.size()));
  }

  /// To one who may have dropped it.
  void try_to_say(std::string_view bytes) const {
    ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  /// What is there to hear, up to so many bytes.
  std::string hear(std::size_t most) const {
    std::string heard(most, '\0');
    const ssize_t bytes = ::recv(socket_.get(), heard.data(), most, MSG_DONTWAIT);
    heard.resize(bytes > 0 ? bytes : 0);
    return heard;
  }

  /// Whether the other end has dropped it.
  bool dropped() const {
    char byte = 0;
    const ssize_t bytes = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return bytes == 0 || (bytes < 0 && errno != EAGAIN);
  }

  void hang_up() { socket_.reset(); }

 private:
  transport::Descriptor socket_;
};

}  // namespace trireme::test
