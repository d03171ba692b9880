// Ranks to test: threads of this process.
#pragma once

#include "communicator/start.h"
#include "trireme/communicator.h"
#include "trireme/error.h"

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace trireme::test {

/// Calls `work` as each of so many ranks, all at once, and gives what each threw and of which kind, as "UsageError: ...";
/// empty for nothing.
inline std::vector<std::string> outcomes(int ranks, const std::function<void(Communicator&)>& work) {
  std::vector<Communicator> worlds = threads_world(ranks, {.patience = std::chrono::seconds(60)});
  std::vector<std::string> said(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        work(worlds[rank]);
      } catch (const UsageError& error) {
        said[rank] = std::string("UsageError: ") + error.what();
      } catch (const SystemError& error) {
        said[rank] = std::string("SystemError: ") + error.what();
      } catch (const std::exception& error) {
        said[rank] = std::string("another error: ") + error.what();
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

/// Every rank has to have said all of these.
inline void expect_all_say(const std::vector<std::string>& said, const std::vector<std::string>& parts) {
  for (const std::string& each : said) {
    for (const std::string& part : parts) EXPECT_NE(each.find(part), std::string::npos) << part << ": " << each;
  }
}

}  // namespace trireme::test
