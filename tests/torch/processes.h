// Ranks to test: processes of their own, in which this program runs one of its tests again.
#pragma once

#include "support/run.h"

#include <gtest/gtest.h>

#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace trireme::test {

inline int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(listener);
  return ntohs(address.sin_port);
}

/// Runs that test, as "Suite.Name", once for each rank, with what init() needs and `told` in the environment: by the
/// latter it knows that it is a rank. All have to succeed.
inline void start_ranks(int ranks, const std::string& test, const std::vector<std::string>& told) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string port = std::to_string(free_port());
  std::vector<std::thread> threads;
  std::vector<Ran> ran(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<std::string> command = {
          "/usr/bin/env",          "RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(ranks),
          "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,          "OMP_NUM_THREADS=1",
          "OPENBLAS_NUM_THREADS=1"};
      command.insert(command.end(), told.begin(), told.end());
      command.insert(command.end(), {self, "--gtest_filter=" + test});
      ran[rank] = run(command);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ran& each : ran) EXPECT_EQ(each.status, 0) << each.out << each.err;
}

}  // namespace trireme::test
