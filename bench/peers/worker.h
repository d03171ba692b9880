// A peer under measurement: ranks of another library, driven line by line, so that one run can interleave several.
//
// When all ranks are up, rank 0 prints "NAME,ready,RANKS". Then it reads commands, one a line:
//   COLLECTIVE BYTES REPEATS    answered by "NAME,COLLECTIVE,RANKS,BYTES,median_us,min_us"
//   quit                        ends all ranks, as does the end of the input
// A command that can't be done is answered by "error,WHY". A wrong result ends the worker, with a message.
//
// BYTES is the size of the whole float32 buffer, as everywhere in Trireme: where ranks have shares, a share is 1/P of
// it, rounded up to whole elements. The root is rank 0. A run is timed on every rank from its own start, and is over
// when its slowest rank is; each follows a barrier. Between commands no rank uses the processor.
#pragma once

#include "trireme/program.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::peers {

/// What rank 0 tells the others, sent as plain bytes.
struct Order {
  bool quit = false;
  Collective collective = Collective::allreduce;
  std::uint64_t bytes = 0;
  int repeats = 0;
};

/// The buffers of one rank. Which of them a collective uses:
///   allreduce, broadcast, reduce   whole, in place
///   allgather, gather              share to whole
///   reduce_scatter, scatter        whole to share
///   all_to_all                     whole to other
struct Buffers {
  std::vector<float> whole;
  std::vector<float> other;
  std::vector<float> share;
};

/// A library's ranks, as serve() needs them. All functions are called by all ranks together.
class Library {
 public:
  virtual ~Library() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  /// The ways to do a collective, each with the name for the answer. The fastest one is reported; none: it can't.
  virtual std::vector<std::string> ways(Collective collective) const = 0;

  /// Does the collective once, in the way of that position in ways().
  virtual void run(Collective collective, std::size_t way, Buffers& buffers) = 0;

  virtual void barrier() = 0;

  /// Rank 0's order, on all ranks. The others wait for it without using the processor.
  virtual void share(Order& order) = 0;

  /// Element by element the greatest of all ranks' values, on rank 0.
  virtual void greatest(std::span<double> values) = 0;
};

/// Obeys commands until told to quit. Throws Error when a result is wrong.
void serve(Library& library, const std::string& name);

}  // namespace trireme::peers
