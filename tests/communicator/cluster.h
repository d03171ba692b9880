// Ranks to test: threads of this process, over each of the ways that a communicator can have.
#pragma once

#include "transport/faulty.h"
#include "trireme/communicator.h"

#include <chrono>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace trireme::test {

enum class Way : unsigned char {
  inproc,       ///< threads that see all of each other's memory
  shm,          ///< as processes of one host do
  tcp,          ///< each on a host of its own
  two_hosts,    ///< the first half shares memory, and so does the rest; TCP between them
  interleaved,  ///< the same for even and odd ranks
};

std::string to_string(Way way);
void PrintTo(Way way, std::ostream* out);

inline const std::vector<Way> kWays = {Way::inproc, Way::shm, Way::tcp, Way::two_hosts};

class Cluster {
 public:
  /// What goes wrong with what a rank sends by TCP.
  using Faults = std::function<std::optional<transport::FaultPlan>(int rank)>;

  Cluster(Way way, int ranks, std::chrono::milliseconds patience = std::chrono::seconds(60), const Faults& faults = {});

  int ranks() const { return static_cast<int>(communicators_.size()); }
  Communicator& operator[](int rank) { return communicators_[rank]; }

  /// Calls `work` as each rank, all at once. What one of them throws is a failure of the test.
  void run(const std::function<void(Communicator&)>& work);

  /// The same, and gives what each rank threw: "UsageError: ..."; empty: nothing.
  std::vector<std::string> outcomes(const std::function<void(Communicator&)>& work);

  /// Lets go of a rank's communicator.
  void drop(int rank);

 private:
  std::vector<Communicator> communicators_;
  std::vector<bool> dropped_;
};

/// What `call` throws: "UsageError: ..."; empty: nothing.
std::string outcome(const std::function<void()>& call);

}  // namespace trireme::test
