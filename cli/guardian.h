// A process that kills the ranks of this one, with all that they have started, should this one die without a chance to
// do so: by SIGKILL, say. The kernel would see to the ranks alone, and a rank is often a shell around the program.
#pragma once

#include "cli/process.h"

#include <cstddef>
#include <sys/types.h>

namespace trireme::cli {

class Guardian {
 public:
  /// For so many process groups at most. Throws SystemError if there can't be one more process.
  explicit Guardian(std::size_t groups);

  /// Nobody is killed any more.
  ~Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// The group of the calling process is one of them. For a child of this process, before it executes its program: safe
  /// in a child of a process with threads.
  void guard_this() const;

 private:
  void tell(pid_t group) const;

  pid_t pid_ = -1;
  Descriptor in_;
};

}  // namespace trireme::cli
