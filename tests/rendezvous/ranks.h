// Ranks as threads, and strangers, for the tests of the rendezvous.
#pragma once

#include "rendezvous/client.h"
#include "rendezvous/server.h"
#include "rendezvous/socket.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace trireme::rendezvous {

using namespace std::chrono_literals;

inline Place place_at(std::uint16_t port, int rank, int ranks, const std::string& host = "127.0.0.1") {
  return {.rank = rank, .ranks = ranks, .host = host, .port = port, .serve = false, .started_by = "a test"};
}

/// More than anything here takes.
inline Deadline soon() { return Clock::now() + 60s; }

/// Calls for each rank in a thread of its own; returns what each threw, "" for nothing.
inline std::vector<std::string> on_ranks(int ranks, const std::function<void(int)>& call) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        call(rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// What a rank sends in a round: another length and content for each.
inline std::string payload(int rank, int round, std::size_t most_bytes) {
  std::string bytes(test::mix(1, rank, round) % (most_bytes + 1), '\0');
  std::uint64_t word = test::mix(2, rank, round);
  for (char& byte : bytes) {
    byte = static_cast<char>(word >> 56);
    word = word * 6364136223846793005ULL + 1442695040888963407ULL;
  }
  return bytes;
}

/// The message of the Thrown that a call throws; what else happened, otherwise.
template <typename Thrown, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Thrown& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error was thrown: ") + error.what();
  }
  return "nothing was thrown";
}

inline void expect_in(std::string_view text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string_view::npos) << word << " in: " << text;
}

/// Says the same to the first that comes, whatever that says, until it hangs up.
inline void serve_once(const Descriptor& listener, const std::string& answer) {
  wait_for(listener, POLLIN, soon());
  const Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ::send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  std::array<char, 4096> buffer{};
  while (::recv(socket.get(), buffer.data(), buffer.size(), 0) > 0) continue;
}

/// Somebody who connects and then does as it pleases.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : socket_(connect_to(resolve("127.0.0.1", port).front(), soon())) {}

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EAGAIN) {
        wait_for(socket_, POLLOUT, soon());
        continue;
      }
      if (count < 0) return;  // It was dropped.
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  /// All that comes until the other side hangs up, or for so long.
  std::string hear(std::chrono::milliseconds patience) const {
    std::string heard;
    const auto deadline = Clock::now() + patience;
    while (wait_for(socket_, POLLIN, deadline)) {
      std::array<char, 4096> buffer{};
      const ssize_t count = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (count <= 0) break;
      heard.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return heard;
  }

  void hang_up() { socket_.close(); }
  void finish() const { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  Descriptor socket_;
};

}  // namespace trireme::rendezvous
