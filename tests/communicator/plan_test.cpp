// Plans: what is lent and offered, and that any order in which things happen ends with the right result.
#include "communicator/plan.h"

#include "support/random.h"
#include "support/rows.h"

#include <gtest/gtest.h>

#include <numeric>

namespace trireme::test {
namespace {

using transport::Sending;

std::vector<Plan> plans_of(std::string_view name, int ranks, Buffers buffers, const std::vector<int>& hosts) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    plans.push_back(make_plan({.algorithm = &find_algorithm(name),
                               .setting = {.ranks = ranks},
                               .rank = rank,
                               .buffers = buffers,
                               .hosts = hosts}));
  }
  return plans;
}

int count(const Plan& plan, Sending sending) {
  return static_cast<int>(std::count_if(plan.nodes.begin(), plan.nodes.end(), [&](const Node& node) {
    return node.kind == NodeKind::send && node.sending == sending;
  }));
}

TEST(Plan, ButterflyIsAnsweredInPlace) {
  const std::vector<int> one_host(5, 0);
  for (const Plan& plan : plans_of("butterfly", 5, Buffers::one, one_host)) {
    EXPECT_EQ(count(plan, Sending::offered), 4);
    EXPECT_EQ(count(plan, Sending::copied), 0);
    for (const Node& node : plan.nodes) {
      if (node.kind != NodeKind::fold) continue;
      EXPECT_EQ(node.sources, 4);
      EXPECT_TRUE(node.divides);
      EXPECT_FALSE(node.piecemeal);
      for (int i = 0; i < node.sources; ++i) EXPECT_GE(plan.sources[node.first_source + i].reply, 0);
    }
    EXPECT_FALSE(plan.divides_at_end);
  }
  // The input is only read: nobody may write to it.
  for (const Plan& plan : plans_of("butterfly", 5, Buffers::two, one_host)) {
    EXPECT_EQ(count(plan, Sending::offered), 0);
    EXPECT_EQ(count(plan, Sending::copied), 0);
  }
}

TEST(Plan, NothingIsLentBetweenHosts) {
  for (const Plan& plan : plans_of("butterfly", 4, Buffers::one, {0, 1, 2, 3})) {
    EXPECT_EQ(count(plan, Sending::copied), plan.sends);
    for (const Node& node : plan.nodes) EXPECT_EQ(node.piecemeal, node.kind == NodeKind::fold);
  }
  for (const Plan& plan : plans_of("butterfly", 4, Buffers::one, {0, 0, 1, 1})) {
    EXPECT_EQ(count(plan, Sending::offered), 1);
    EXPECT_EQ(count(plan, Sending::copied), 4);
  }
}

TEST(Plan, RecursiveDoublingCopiesWhatWouldWaitForItself) {
  for (const Plan& plan : plans_of("recursive_doubling", 2, Buffers::one, {0, 0})) {
    EXPECT_EQ(count(plan, Sending::copied), 1);
  }
  for (const Plan& plan : plans_of("recursive_doubling", 2, Buffers::two, {0, 0})) {
    EXPECT_EQ(count(plan, Sending::lent), 1);
  }
}

TEST(Plan, RingLendsAll) {
  for (const Plan& plan : plans_of("ring", 4, Buffers::one, {0, 0, 0, 0})) {
    EXPECT_EQ(count(plan, Sending::lent), 6);
    EXPECT_EQ(plan.sends, 6);
  }
}

TEST(Plan, TreeOffersToWhoAnswersAtOnce) {
  const std::vector<Plan> plans = plans_of("tree", 4, Buffers::one, {0, 0, 0, 0});
  int offered = 0;
  for (const Plan& plan : plans) {
    offered += count(plan, Sending::offered);
    EXPECT_EQ(count(plan, Sending::copied), 0);
  }
  EXPECT_GE(offered, 1);
}

TEST(Plan, MessagesAreCutAlikeOnAllRanks) {
  for (const Algorithm& row : algorithms()) {
    if (row.served) continue;
    for (const int ranks : {5, 8, 70}) {
      if (!row.accepts(ranks)) continue;
      const std::vector<int> hosts(ranks, 0);
      std::vector<int> most;
      for (const int rank : {0, 1, ranks / 2, ranks - 1}) {
        const PlanRequest request{
            .algorithm = &row, .setting = {.ranks = ranks}, .rank = rank, .buffers = Buffers::two, .hosts = hosts};
        most.push_back(make_plan(request).most_blocks);
      }
      EXPECT_EQ(most, std::vector<int>(4, most[0])) << full_name(row) << " " << ranks;
    }
  }
}

/// Runs the plans of all ranks on numbers. A lent message is read where it lies when it is used, and its send ends
/// then.
class Stage {
 public:
  Stage(const Algorithm& row, const Setting& setting, std::vector<Plan> plans, std::vector<Buffers> buffers,
        int one_in_copied, std::uint64_t seed)
      : row_(row), setting_(setting), plans_(std::move(plans)), random_(seed), one_in_copied_(one_in_copied) {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Plan& plan = plans_[rank];
      Rank& state = ranks_.emplace_back();
      state.one = buffers[rank] == Buffers::one;
      for (int block = 0; block < plan.blocks; ++block) {
        state.input.push_back(given(rank, block));
        state.work.push_back(state.one ? given(rank, block) : kGarbage);
      }
      for (const int block : plan.copied) state.work[block] = state.input[block];
      state.nodes.resize(plan.nodes.size());
      for (std::size_t i = 0; i < plan.nodes.size(); ++i) state.nodes[i].waits = plan.nodes[i].waits;
      state.messages.resize(plan.sources.size());
      for (const int node : plan.starts) ready_.push_back({rank, node});
    }
  }

  std::string run() {
    while (!ready_.empty() && problem_.empty()) {
      std::swap(ready_[random_.below(static_cast<int>(ready_.size()))], ready_.back());
      const Where where = ready_.back();
      ready_.pop_back();
      go_on(where);
    }
    for (int rank = 0; rank < ranks() && problem_.empty(); ++rank) check(rank);
    return problem_;
  }

 private:
  using Value = std::uint64_t;
  static constexpr Value kGarbage = 0xDEADBEEFDEADBEEF;
  static constexpr Value kDivided = 0x9E3779B97F4A7C15;  ///< to divide is to multiply by this

  struct Where {
    int rank, node;
  };
  struct Message {
    bool here = false;
    bool lent = false;
    bool offered = false;
    Where sender{};
    std::vector<Value> values;
  };
  struct NodeState {
    int waits = 0;
    bool begun = false, ended = false, settled = false;
  };
  struct Rank {
    bool one = false;
    std::vector<Value> input, work;
    std::vector<NodeState> nodes;
    std::vector<Message> messages;  ///< by source
  };

  int ranks() const { return static_cast<int>(plans_.size()); }
  static Value value(int rank, int block) { return mix(7, rank, block); }

  bool reducing() const {
    const Collective c = row_.collective;
    return c == Collective::allreduce || c == Collective::reduce_scatter || c == Collective::reduce;
  }

  /// What a rank has in a block at the start.
  Value given(int rank, int block) const {
    const bool gathers = row_.collective == Collective::allgather || row_.collective == Collective::gather;
    const bool has = !gathers || share_of_rank(rank, ranks(), plans_[rank].blocks).overlaps(block);
    const bool root_only = row_.collective == Collective::broadcast || row_.collective == Collective::scatter;
    return has && (!root_only || rank == setting_.root) ? value(rank, block) : kGarbage;
  }

  Value read(int rank, const Node& node, int block) const {
    const Rank& state = ranks_[rank];
    return node.from_input ? state.input[block] : state.work[block];
  }

  void go_on(Where where) {
    NodeState& state = ranks_[where.rank].nodes[where.node];
    const Node& node = plans_[where.rank].nodes[where.node];
    if (state.waits > 0 || state.ended) return;
    if (state.settled) {
      end(where);
    } else if (node.kind == NodeKind::send) {
      if (!state.begun) send(where, node);
    } else {
      take(where, node);
    }
  }

  void send(Where where, const Node& node) {
    ranks_[where.rank].nodes[where.node].begun = true;
    const Address to = plans_[node.peer].arrivals[where.rank][node.index];
    Message& message = ranks_[node.peer].messages[plans_[node.peer].nodes[to.node].first_source + to.source];
    const bool copied = node.sending == Sending::copied || (one_in_copied_ > 0 && random_.chance(one_in_copied_));
    message = {.here = true,
               .lent = !copied,
               .offered = !copied && node.sending == Sending::offered,
               .sender = where,
               .values = {}};
    for (int block = node.run.first; block < node.run.end(); ++block) {
      message.values.push_back(read(where.rank, node, block));
    }
    if (copied) end(where);
    ready_.push_back({node.peer, to.node});
  }

  void take(Where where, const Node& node) {
    const Plan& plan = plans_[where.rank];
    Rank& state = ranks_[where.rank];
    const auto messages = std::span(state.messages).subspan(node.first_source, node.sources);
    if (!std::all_of(messages.begin(), messages.end(), [](const Message& message) { return message.here; })) return;
    for (int i = 0; i < node.run.count; ++i) {
      const int block = node.run.first + i;
      Value result = node.kind == NodeKind::fold ? read(where.rank, node, block) : 0;
      for (const Message& message : messages) {
        const Node& sender = plans_[message.sender.rank].nodes[message.sender.node];
        result += message.lent ? read(message.sender.rank, sender, sender.run.first + i) : message.values[i];
      }
      if (node.kind == NodeKind::fold && node.divides && reducing()) result *= kDivided;
      state.work[block] = result;
      if (state.one) state.input[block] = result;
    }
    for (int i = 0; i < node.sources; ++i) {
      const Message& message = messages[i];
      if (!message.lent) continue;
      const Node& sender = plans_[message.sender.rank].nodes[message.sender.node];
      const int reply = plan.sources[node.first_source + i].reply;
      if (message.offered && reply >= 0) {
        Rank& other = ranks_[message.sender.rank];
        for (int block = 0; block < node.run.count; ++block) {
          other.work[sender.run.first + block] = state.work[node.run.first + block];
        }
        state.nodes[reply].settled = true;
        other.nodes[sender.answer].settled = true;
      }
      end(message.sender);
    }
    end(where);
  }

  void end(Where where) {
    Rank& state = ranks_[where.rank];
    if (state.nodes[where.node].ended) problem_ = "a node ended twice";
    state.nodes[where.node].ended = true;
    const Plan& plan = plans_[where.rank];
    const Node& node = plan.nodes[where.node];
    for (int i = 0; i < node.nexts; ++i) {
      const int next = plan.nexts[node.first_next + i];
      if (--state.nodes[next].waits == 0) ready_.push_back({where.rank, next});
    }
  }

  Value all(int block) const {
    Value total = 0;
    for (int rank = 0; rank < ranks(); ++rank) total += value(rank, block);
    return total * kDivided;
  }

  void check(int rank) {
    const Rank& state = ranks_[rank];
    const Plan& plan = plans_[rank];
    for (std::size_t i = 0; i < state.nodes.size(); ++i) {
      if (!state.nodes[i].ended)
        problem_ = "rank " + std::to_string(rank) + " waits for ever at node " + std::to_string(i);
    }
    const int parts = std::max(1, plan.blocks / ranks());
    for (int block = 0; block < plan.blocks && problem_.empty(); ++block) {
      const bool own = block / parts == rank;
      const bool root = rank == setting_.root;
      Value is = state.work[block];
      if (plan.divides_at_end) is *= kDivided;
      Value expected = is;
      switch (row_.collective) {
        case Collective::allreduce: expected = all(block); break;
        case Collective::reduce_scatter: expected = own ? all(block) : is; break;
        case Collective::reduce: expected = root ? all(block) : is; break;
        case Collective::allgather: expected = value(block / parts, block); break;
        case Collective::gather: expected = root ? value(block / parts, block) : is; break;
        case Collective::broadcast: expected = value(setting_.root, block); break;
        case Collective::scatter: expected = own ? value(setting_.root, block) : is; break;
        case Collective::all_to_all: expected = value(block / parts, rank * parts + block % parts); break;
        default: break;
      }
      // One rank has nothing to divide by.
      if (ranks() == 1 && reducing()) expected = value(rank, block);
      if (!reducing()) is = state.work[block];
      if (is != expected)
        problem_ = "rank " + std::to_string(rank) + " has a wrong value in block " + std::to_string(block);
    }
  }

  const Algorithm& row_;
  Setting setting_;
  std::vector<Plan> plans_;
  Random random_;
  int one_in_copied_;
  std::vector<Rank> ranks_;
  std::vector<Where> ready_;
  std::string problem_;
};

class EveryPlan : public EveryRow {};

TEST_P(EveryPlan, EndsWithTheRightResultInAnyOrder) {
  if (row().served) return;
  constexpr int kMost = kEffort == 1 ? 6 : 9;
  for (int ranks = 1; ranks <= kMost; ++ranks) {
    std::vector<std::vector<int>> layouts(4, std::vector<int>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      layouts[1][rank] = rank < ranks / 2 ? 0 : 1;
      layouts[2][rank] = rank % 2;
      layouts[3][rank] = rank;
    }
    for (const Setting& setting : settings_of(row(), ranks)) {
      for (const std::vector<int>& hosts : layouts) {
        for (int mixture = 0; mixture < 3; ++mixture) {
          std::vector<Plan> plans;
          std::vector<Buffers> buffers;
          for (int rank = 0; rank < ranks; ++rank) {
            buffers.push_back(mixture == 0 || (mixture == 2 && rank % 3 == 1) ? Buffers::one : Buffers::two);
            // A single share has no room for the others' results.
            plans.push_back(make_plan(
                {.algorithm = &row(), .setting = setting, .rank = rank, .buffers = buffers.back(), .hosts = hosts}));
          }
          for (const int one_in_copied : {0, 2}) {
            for (int seed = 0; seed < (kEffort == 1 ? 1 : 3); ++seed) {
              Stage stage(row(), setting, plans, buffers, one_in_copied, mix(seed, ranks, mixture));
              ASSERT_EQ(stage.run(), "") << describe(setting) << ", mixture " << mixture << ", hosts "
                                         << testing::PrintToString(hosts) << ", one in copied " << one_in_copied;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPlan, ::testing::ValuesIn(every_row()), test_name);

}  // namespace
}  // namespace trireme::test
