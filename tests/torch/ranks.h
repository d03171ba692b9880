// Ranks to test: threads of this process.
#pragma once

#include "communicator/start.h"
#include "trireme/communicator.h"

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace trireme::test {

/// Calls `work` as each of so many ranks, all at once, and gives what each threw: empty for nothing.
inline std::vector<std::string> outcomes(int ranks, const std::function<void(Communicator&)>& work) {
  std::vector<Communicator> worlds = threads_world(ranks, {.patience = std::chrono::seconds(60)});
  std::vector<std::string> said(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(worlds[rank]);
      } catch (const std::exception& error) {
        said[rank] = error.what();
        if (said[rank].empty()) said[rank] = "an error without a message";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

/// The same, where nothing may be thrown.
inline void on_ranks(int ranks, const std::function<void(Communicator&)>& work) {
  for (const std::string& said : outcomes(ranks, work)) EXPECT_EQ(said, "");
}

}  // namespace trireme::test
