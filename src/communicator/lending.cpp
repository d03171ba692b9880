// What a plan can only know from the programs of all ranks: which sends may be read in place without anyone waiting for
// himself, which can be answered in place, and where a sum is complete.
#include "communicator/plan.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace trireme {
namespace {

using transport::Sending;

struct Where {
  int rank;
  int node;
};

/// The node that a send's message comes to.
Where receiver_of(std::span<const Plan> plans, Where send) {
  const Node& node = plans[send.rank].nodes[send.node];
  return {node.peer, plans[node.peer].arrivals[send.rank][node.index].node};
}

/// The sends of a rank, by peer and index.
std::vector<std::vector<int>> sends_by_peer(const Plan& plan) {
  std::vector<std::vector<int>> sends(plan.arrivals.size());
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (plan.nodes[i].kind == NodeKind::send) sends[plan.nodes[i].peer].push_back(static_cast<int>(i));
  }
  return sends;
}

/// Runs the plans of all ranks without bytes. A lent message is on loan until its receiver has ended; when all who can
/// go on wait for loans to end, those are made copies instead.
class Rehearsal {
 public:
  explicit Rehearsal(std::span<Plan> plans) : plans_(plans), sends_(plans.size()), ranks_(plans.size()) {
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      sends_[rank] = sends_by_peer(plans[rank]);
      Rank& state = ranks_[rank];
      for (const Node& node : plans[rank].nodes) {
        state.waits.push_back(node.waits);
        state.missing.push_back(node.sources);
      }
    }
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      for (const int node : plans[rank].starts) begin({static_cast<int>(rank), node});
    }
  }

  void run() {
    while (true) {
      while (!ended_.empty()) {
        const Where ended = ended_.front();
        ended_.pop_front();
        unblock(ended);
      }
      std::vector<Where> blocking;
      for (const Where& loan : loans_) {
        const Node& node = plans_[loan.rank].nodes[loan.node];
        if (!ranks_[loan.rank].ended.contains(loan.node) && node.nexts > 0) blocking.push_back(loan);
      }
      loans_.clear();
      if (blocking.empty()) return;
      for (const Where& loan : blocking) {
        plans_[loan.rank].nodes[loan.node].sending = Sending::copied;
        end(loan);
      }
    }
  }

 private:
  /// Numbers, of which one may ask whether they are in.
  class Set {
   public:
    bool contains(int number) const {
      return number < static_cast<int>(has_.size()) && has_[static_cast<std::size_t>(number)];
    }
    void insert(int number) {
      if (number >= static_cast<int>(has_.size())) has_.resize(static_cast<std::size_t>(number) + 1);
      has_[static_cast<std::size_t>(number)] = true;
    }

   private:
    std::vector<bool> has_;
  };

  struct Rank {
    std::vector<int> waits;
    std::vector<int> missing;  ///< messages that have not come
    Set ended;
  };

  void begin(Where where) {
    const Node& node = plans_[where.rank].nodes[where.node];
    if (node.kind != NodeKind::send) {
      end_if_complete(where);
      return;
    }
    const Where to = receiver_of(plans_, where);
    --ranks_[to.rank].missing[to.node];
    if (node.sending == Sending::copied) {
      end(where);
    } else {
      loans_.push_back(where);
    }
    end_if_complete(to);
  }

  void end_if_complete(Where where) {
    Rank& state = ranks_[where.rank];
    if (state.waits[where.node] > 0 || state.missing[where.node] > 0 || state.ended.contains(where.node)) return;
    end(where);
    const Plan& plan = plans_[where.rank];
    const Node& node = plan.nodes[where.node];
    for (int i = 0; i < node.sources; ++i) {
      const int peer = plan.sources[node.first_source + i].peer;
      const auto& arrivals = plan.arrivals[peer];
      for (std::size_t index = 0; index < arrivals.size(); ++index) {
        if (arrivals[index].node == where.node && arrivals[index].source == i) {
          const Where sender{peer, sends_[peer][where.rank][index]};
          if (!ranks_[peer].ended.contains(sender.node)) end(sender);
        }
      }
    }
  }

  void end(Where where) {
    ranks_[where.rank].ended.insert(where.node);
    ended_.push_back(where);
  }

  void unblock(Where where) {
    const Plan& plan = plans_[where.rank];
    const Node& node = plan.nodes[where.node];
    for (int i = 0; i < node.nexts; ++i) {
      const int next = plan.nexts[node.first_next + i];
      if (--ranks_[where.rank].waits[next] == 0) begin({where.rank, next});
    }
  }

  std::span<Plan> plans_;
  std::vector<std::vector<std::vector<int>>> sends_;
  std::vector<Rank> ranks_;
  std::deque<Where> ended_;  ///< whose followers have not been told
  std::vector<Where> loans_;
};

/// The only node that comes next on all blocks of a send, if it is a receive of just these from the same peer.
std::optional<int> overwritten_by_answer(const Plan& plan, int send) {
  const Node& node = plan.nodes[send];
  if (node.nexts != 1) return std::nullopt;
  const int next = plan.nexts[node.first_next];
  const Node& receive = plan.nodes[next];
  const bool fits = receive.kind == NodeKind::receive && receive.run == node.run && receive.waits == 1 &&
                    plan.sources[receive.first_source].peer == node.peer;
  if (!fits) return std::nullopt;
  return next;
}

int index_of(const Plan& plan, int peer, int node) {
  const auto& arrivals = plan.arrivals[peer];
  const auto found = std::find_if(arrivals.begin(), arrivals.end(), [&](Address to) { return to.node == node; });
  return static_cast<int>(found - arrivals.begin());
}

/// Offers a send for an answer if the peer folds it, and the first thing it does with the result of that fold is to
/// send it back.
void offer(std::span<Plan> plans, Where send) {
  Plan& plan = plans[send.rank];
  Node& node = plan.nodes[send.node];
  const std::optional<int> receive = overwritten_by_answer(plan, send.node);
  if (!receive) return;
  const Where to = receiver_of(plans, send);
  Plan& peer = plans[to.rank];
  const Node& fold = peer.nodes[to.node];
  const int reply = sends_by_peer(peer)[send.rank][index_of(plan, to.rank, *receive)];
  const Node& back = peer.nodes[reply];
  const bool fits = fold.kind == NodeKind::fold && back.run == fold.run && back.waits == 1 &&
                    std::find(peer.nexts.begin() + fold.first_next, peer.nexts.begin() + fold.first_next + fold.nexts,
                              reply) != peer.nexts.begin() + fold.first_next + fold.nexts;
  if (!fits) return;
  node.sending = Sending::offered;
  node.answer = *receive;
  peer.sources[fold.first_source + peer.arrivals[send.rank][node.index].source].reply = reply;
}

}  // namespace

void lend(std::span<Plan> plans, std::span<const int> hosts) {
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    for (Node& node : plans[rank].nodes) {
      node.local = node.kind == NodeKind::send && hosts[node.peer] == hosts[rank];
      if (node.local) node.sending = Sending::lent;
    }
  }
  Rehearsal(plans).run();
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    for (std::size_t i = 0; i < plans[rank].nodes.size(); ++i) {
      const Where where{static_cast<int>(rank), static_cast<int>(i)};
      if (plans[rank].nodes[i].sending == Sending::lent) offer(plans, where);
    }
  }
}

// Follows how many ranks' values are in each block, in an order in which every message is sent before it is taken.
void find_complete_sums(std::span<Plan> plans) {
  const int ranks = static_cast<int>(plans.size());
  struct Rank {
    std::vector<int> waits, missing;
    std::vector<int> values;                 ///< by block
    std::vector<std::vector<int>> messages;  ///< by source: how many values are in each block that came
  };
  std::vector<Rank> states(plans.size());
  std::deque<Where> ready;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Node& node : plans[rank].nodes) {
      states[rank].waits.push_back(node.waits);
      states[rank].missing.push_back(node.sources);
    }
    states[rank].values.assign(plans[rank].blocks, 1);
    states[rank].messages.resize(plans[rank].sources.size());
    for (const int node : plans[rank].starts) {
      if (plans[rank].nodes[node].kind == NodeKind::send) ready.push_back({rank, node});
    }
  }
  const auto offer_if_ready = [&](Where where) {
    const Rank& state = states[where.rank];
    if (state.waits[where.node] == 0 && state.missing[where.node] == 0) ready.push_back(where);
  };
  while (!ready.empty()) {
    const Where where = ready.front();
    ready.pop_front();
    Plan& plan = plans[where.rank];
    Node& node = plan.nodes[where.node];
    Rank& state = states[where.rank];
    const auto values = state.values.begin() + node.run.first;
    if (node.kind == NodeKind::send) {
      const Where to = receiver_of(plans, where);
      const Address address = plans[to.rank].arrivals[where.rank][node.index];
      const int source = plans[to.rank].nodes[to.node].first_source + address.source;
      states[to.rank].messages[source].assign(values, values + node.run.count);
      --states[to.rank].missing[to.node];
      offer_if_ready(to);
    } else {
      for (int i = 0; i < node.sources; ++i) {
        const std::vector<int>& message = state.messages[node.first_source + i];
        for (int block = 0; block < node.run.count; ++block) {
          values[block] = message[block] + (node.kind == NodeKind::fold ? values[block] : 0);
        }
      }
      const auto complete = std::count(values, values + node.run.count, ranks);
      if (node.kind == NodeKind::fold) {
        node.divides = complete == node.run.count;
        if (complete != 0 && complete != node.run.count) plan.divides_at_end = true;
      }
    }
    for (int i = 0; i < node.nexts; ++i) {
      const int next = plan.nexts[node.first_next + i];
      if (--state.waits[next] == 0) offer_if_ready({where.rank, next});
    }
  }
  // All or none: a rank that divides what others have divided already would be wrong.
  const bool at_end = std::any_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.divides_at_end; });
  for (Plan& plan : plans) {
    plan.divides_at_end = at_end;
    for (Node& node : plan.nodes) node.divides = node.divides && !at_end;
  }
}

}  // namespace trireme
