// Plans: a rank's program, made ready to be run.
//
// The steps become nodes: a send, a receive, or a fold, which is a row of additions to the same blocks with nothing in
// between, done in one pass. A node waits for the nodes before it that touch its blocks. A plan knows no bytes: it is
// made once for a collective, an algorithm and a way of giving buffers, and run for any size.
//
// Sends between ranks of one host need not copy (lending.cpp decides where, from the programs of all ranks):
//   lent     the peer reads the blocks in place; the send ends when it has
//   offered  the peer folds the blocks, and the next that happens to them here is that they are overwritten by its
//            result: so it writes that in place, and neither this rank's receive nor its own send has anything to do
#pragma once

#include "transport/transport.h"
#include "trireme/algorithms.h"
#include "trireme/program.h"

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

enum class NodeKind : std::uint8_t { send, receive, fold };

/// One message that a receive or a fold takes in.
struct Source {
  int peer = 0;
  int reply = -1;  ///< the send that is done by writing the fold's result to this source, if it was offered; -1: none
};

struct Node {
  NodeKind kind = NodeKind::send;
  Run run{0};
  bool from_input = false;  ///< the own blocks are read from the input: nothing has been written over them yet
  bool divides = false;     ///< the fold completes the sum, and makes it the average
  bool piecemeal = false;   ///< the fold takes sources as they come, instead of all in one pass

  // A send's.
  int peer = 0;
  int index = 0;        ///< which message to that peer
  int first_piece = 0;  ///< blocks of the sends before it
  bool local = false;   ///< the peer shares memory with this rank
  transport::Sending sending = transport::Sending::copied;
  int answer = -1;  ///< the receive that is done when an offered message was answered

  // A receive's or fold's.
  int first_source = 0;
  int sources = 0;

  int waits = 0;  ///< nodes that must end before it begins
  int first_next = 0;
  int nexts = 0;  ///< nodes that wait for it, in Plan::nexts
};

/// Where a message from a peer goes.
struct Address {
  int node = 0;
  int source = 0;  ///< counted within the node
};

struct Plan {
  const Algorithm* algorithm = nullptr;
  int blocks = 1;
  std::vector<Node> nodes;
  std::vector<Source> sources;
  std::vector<int> nexts;
  std::vector<int> starts;                     ///< nodes that wait for none
  std::vector<std::vector<Address>> arrivals;  ///< by peer, then by the message's index
  std::vector<int> copied;                     ///< blocks that are copied from the input before anything else
  std::vector<bool> written;                   ///< by block: something is received or folded into it, or it is copied
  int most_blocks = 1;                         ///< in one message of any rank
  bool divides_at_end = false;                 ///< an average is left as the sum, to be divided when all is done
  bool offers = false;                         ///< some of its sends are offered
  int sends = 0;
  int send_blocks = 0;  ///< blocks of all sends together
};

/// Whose buffer the blocks are in.
enum class Buffers : std::uint8_t {
  one,  ///< input and result are the same memory
  two,  ///< the input is only read
};

struct PlanRequest {
  const Algorithm* algorithm = nullptr;
  Setting setting;
  int rank = 0;
  Buffers buffers = Buffers::one;
  std::span<const int> hosts;  ///< by rank: ranks with the same number share memory
};

/// The plan of one rank. All ranks of a host come to the same conclusions about what is lent between them.
Plan make_plan(const PlanRequest& request);

/// The program as nodes, without anything lent, piecemeal or divided.
Plan compile(const Program& program, Collective collective, int rank, int ranks, int root, Buffers buffers);

/// Decides what is lent and offered, and where sums are complete. `plans` are those of all ranks.
void lend(std::span<Plan> plans, std::span<const int> hosts);
void find_complete_sums(std::span<Plan> plans);

}  // namespace trireme
