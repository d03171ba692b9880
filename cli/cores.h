// The cores that this process may use, and equal shares of them.
#pragma once

#include <memory>

namespace trireme::cli {

class Cores {
 public:
  /// Those of the calling thread's affinity mask.
  Cores();
  ~Cores();
  Cores(const Cores&) = delete;
  Cores& operator=(const Cores&) = delete;

  /// Cores, not hardware threads; at least one.
  int count() const;

  /// Binds the calling thread, and so what it forks, to the share-th of so many equal parts of neighbouring cores;
  /// false if the system does not let it. There have to be as many cores as shares.
  bool bind_to_share(int share, int shares) const;

  /// Binds it to all of them again.
  void unbind() const;

 private:
  struct Topology;
  std::unique_ptr<Topology> topology_;
};

}  // namespace trireme::cli
