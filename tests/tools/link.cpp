// What netlab_test.sh needs on the hosts of a cluster, so that it leans on no other tool.
//   link receive PORT              takes one connection, reads all, prints the rate in Mbit/s from the first byte on
//   link send ADDRESS PORT BYTES   connects, within 10 seconds, and sends
//   link hold NAME                 listens on an abstract unix socket, prints "held", and waits until its input ends
//   link see NAME                  status 0 if such a socket can be reached from here, 1 if not
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

sockaddr_in internet_address(const std::string& address, const std::string& port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  check(::inet_pton(AF_INET, address.c_str(), &result.sin_addr) == 1, "not an address");
  return result;
}

int listening_socket(const sockaddr* address, socklen_t size) {
  const int listener = ::socket(address->sa_family, SOCK_STREAM, 0);
  check(listener >= 0 && ::bind(listener, address, size) == 0 && ::listen(listener, 4) == 0, "can't listen");
  return listener;
}

void receive(const std::string& port) {
  const sockaddr_in address = internet_address("0.0.0.0", port);
  const int listener = listening_socket(reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int connection = ::accept(listener, nullptr, nullptr);
  check(connection >= 0, "no connection");
  std::vector<char> bytes(1U << 16U);
  double total = 0;
  Clock::time_point begin;
  for (ssize_t count = 0; (count = ::read(connection, bytes.data(), bytes.size())) > 0;) {
    if (total == 0) begin = Clock::now();
    total += static_cast<double>(count);
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  std::printf("%.0f\n", total * 8 / took.count() / 1e6);
}

void send(const std::string& address, const std::string& port, const std::string& bytes) {
  const sockaddr_in peer = internet_address(address, port);
  const auto limit = Clock::now() + std::chrono::seconds(10);
  int connection = -1;
  while (true) {
    connection = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(connection, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0) break;
    ::close(connection);
    check(Clock::now() < limit, "can't connect");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::vector<char> piece(1U << 16U, 'x');
  for (std::size_t left = std::stoul(bytes); left > 0;) {
    const ssize_t count = ::write(connection, piece.data(), std::min(left, piece.size()));
    check(count > 0, "can't send");
    left -= static_cast<std::size_t>(count);
  }
  ::close(connection);
}

struct AbstractAddress {
  explicit AbstractAddress(std::string_view name) {
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size;
};

void hold(const std::string& name) {
  const AbstractAddress address(name);
  listening_socket(address.get(), address.size);
  std::puts("held");
  std::fflush(stdout);
  std::array<char, 64> ignored{};
  while (::read(STDIN_FILENO, ignored.data(), ignored.size()) > 0) {
  }
}

bool see(const std::string& name) {
  const AbstractAddress address(name);
  return ::connect(::socket(AF_UNIX, SOCK_STREAM, 0), address.get(), address.size) == 0;
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "receive") {
    receive(words[1]);
  } else if (words.size() == 4 && words[0] == "send") {
    send(words[1], words[2], words[3]);
  } else if (words.size() == 2 && words[0] == "hold") {
    hold(words[1]);
  } else if (words.size() == 2 && words[0] == "see") {
    return see(words[1]) ? 0 : 1;
  } else {
    throw std::runtime_error("usage: link receive PORT | send ADDRESS PORT BYTES | hold NAME | see NAME");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ::alarm(60);  // no test waits for ever
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "link: %s\n", error.what());
    return 2;
  }
}
