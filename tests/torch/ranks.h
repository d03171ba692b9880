// Ranks to test: threads of this process, which see all of each other's memory unless told otherwise.
#pragma once

#include "communicator/cluster.h"
#include "trireme/communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace trireme::test {

/// Calls `work` as each of so many ranks, all at once, and gives what each threw and of which kind, as "UsageError:
/// ..."; empty for nothing.
inline std::vector<std::string> outcomes(Way way, int ranks, const std::function<void(Communicator&)>& work) {
  return Cluster(way, ranks).outcomes(work);
}
inline std::vector<std::string> outcomes(int ranks, const std::function<void(Communicator&)>& work) {
  return outcomes(Way::inproc, ranks, work);
}

/// The same, where nothing may be thrown.
inline void on_ranks(Way way, int ranks, const std::function<void(Communicator&)>& work) {
  Cluster(way, ranks).run(work);
}
inline void on_ranks(int ranks, const std::function<void(Communicator&)>& work) { on_ranks(Way::inproc, ranks, work); }

/// Every rank has to have said all of these.
inline void expect_all_say(const std::vector<std::string>& said, const std::vector<std::string>& parts) {
  for (const std::string& each : said) {
    for (const std::string& part : parts) EXPECT_NE(each.find(part), std::string::npos) << part << ": " << each;
  }
}

}  // namespace trireme::test
