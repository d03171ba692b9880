// Programs: an algorithm as plain data.
//
// A program is the list of steps that one rank takes. It knows nothing of bytes, dtypes, sockets or threads. A buffer
// is cut into `blocks` nearly equal blocks, and a step names a run of neighbouring blocks and a peer.
//
// What must hold, for every reader of a program:
//   - steps of a rank that touch the same block happen in program order (two sends may overlap: neither changes it);
//   - messages between one pair of ranks match in program order: the k-th send from a to b meets the k-th receive or
//     add of b that names a, and both have the same number of blocks;
//   - nothing else is ordered.
#pragma once

#include "trireme/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class Action : std::uint8_t {
  send,     ///< the blocks' present value goes to the peer
  receive,  ///< the blocks are overwritten by what the peer sends
  add,      ///< what the peer sends is reduced into the blocks, own value on the left
};

/// Neighbouring blocks: first, first + 1, ..., first + count - 1.
struct Run {
  Run(int first_block, int block_count = 1) : first(first_block), count(block_count) {}

  int end() const { return first + count; }
  bool overlaps(Run other) const { return first < other.end() && other.first < end(); }
  bool operator==(const Run&) const = default;

  int first;
  int count;
};

struct Step {
  Action action;
  int peer;
  Run run;

  bool operator==(const Step&) const = default;
};

/// What one rank does.
struct Program {
  int blocks = 1;
  std::vector<Step> steps = {};

  void send(Run run, int peer) { steps.push_back({Action::send, peer, run}); }
  void receive(Run run, int peer) { steps.push_back({Action::receive, peer, run}); }
  void add(Run run, int peer) { steps.push_back({Action::add, peer, run}); }

  bool operator==(const Program&) const = default;
};

/// What the programs of all ranks together promise. The buffer has the same blocks on every rank; where a rank owns a
/// share, that is the share_of_rank() blocks.
enum class Collective : std::uint8_t {
  allreduce,       ///< every rank ends with the sum in every block
  reduce_scatter,  ///< every rank ends with the sum in its own share
  allgather,       ///< every rank starts with its own share and ends with all shares
  broadcast,       ///< every rank ends with the root's blocks
  reduce,          ///< the root ends with the sum in every block
  gather,          ///< every rank starts with its own share, the root ends with all shares
  scatter,         ///< the root starts with all shares, every rank ends with its own
  all_to_all,      ///< share d of rank s ends as share s of rank d, in place
  barrier,         ///< no rank ends before it has heard of every rank
};

inline constexpr int kCollectives = 9;

std::string_view to_string(Action action);
std::string_view to_string(Collective collective);

/// The collective of that name. Throws UsageError, which suggests the nearest name.
Collective parse_collective(std::string_view name);

/// The blocks that `rank` owns in a collective of shares. `blocks` must be a multiple of `ranks`.
Run share_of_rank(int rank, int ranks, int blocks);

/// The programs of all ranks, and what they promise together. The last `servers` ranks hold a buffer but contribute
/// nothing and want nothing.
struct Schedule {
  std::string algorithm;
  Collective collective = Collective::allreduce;
  int root = 0;
  int servers = 0;
  std::vector<Program> programs = {};

  int ranks() const { return static_cast<int>(programs.size()); }
  int workers() const { return ranks() - servers; }
  int blocks() const { return programs.empty() ? 1 : programs.front().blocks; }

  bool operator==(const Schedule&) const = default;
};

/// The text form; parse_schedule() gives the same schedule back, but for an algorithm's name that is not one word.
std::string to_text(const Schedule& schedule);

/// The text form of one rank's program, as it stands inside that of the schedule.
std::string to_text(const Program& program, int rank);

/// Reads the text form. Throws UsageError with `source`, line and column, and what was expected there.
Schedule parse_schedule(std::string_view text, std::string_view source);

}  // namespace trireme
