#include "communicator/plan.h"

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

/// Beyond this many ranks, what other ranks do is not looked at: nothing that could block is lent.
constexpr int kMostRanksAnalysed = 64;

/// The blocks that a rank must hold when all is done.
Run wanted(Collective collective, int rank, int ranks, int root, int blocks) {
  switch (collective) {
    case Collective::reduce_scatter:
    case Collective::scatter: return share_of_rank(rank, ranks, blocks);
    case Collective::reduce:
    case Collective::gather: return rank == root ? Run(0, blocks) : Run(0, 0);
    case Collective::barrier: return Run(0, 0);
    default: return Run(0, blocks);
  }
}

/// Turns steps into nodes, one after the other.
class Compiler {
 public:
  Compiler(const Program& program, int ranks, Buffers buffers, const std::vector<bool>& copied)
      : buffers_(buffers),
        written_(copied),
        mixed_(program.blocks),
        last_write_(program.blocks, -1),
        last_touch_(program.blocks, -1),
        reads_(program.blocks),
        sent_(ranks) {
    plan_.blocks = program.blocks;
    plan_.arrivals.resize(ranks);
    for (const Step& step : program.steps) add(step);
    finish();
  }

  Plan& plan() { return plan_; }
  const std::vector<bool>& written() const { return written_; }

  /// Blocks of the input whose run has others that are not there, which no node can read at once.
  const std::vector<bool>& mixed() const { return mixed_; }

 private:
  void add(const Step& step) {
    if (step.action == Action::send) {
      add_send(step);
    } else if (step.action == Action::add && extends_fold(step)) {
      add_source(last_touch_[step.run.first], step.peer);
    } else {
      add_write(step);
    }
  }

  bool extends_fold(const Step& step) const {
    const int node = last_touch_[step.run.first];
    if (node < 0 || plan_.nodes[node].kind != NodeKind::fold || !(plan_.nodes[node].run == step.run)) return false;
    for (int block = step.run.first; block < step.run.end(); ++block) {
      if (last_touch_[block] != node) return false;
    }
    return true;
  }

  bool from_input(Run run) {
    if (buffers_ == Buffers::one) return false;
    const auto begin = written_.begin() + run.first;
    const auto count = std::count(begin, begin + run.count, true);
    for (int block = run.first; count != 0 && block < run.end(); ++block) {
      if (!written_[block]) mixed_[block] = true;
    }
    return count == 0;
  }

  void add_send(const Step& step) {
    Node node{.kind = NodeKind::send, .run = step.run, .from_input = from_input(step.run), .peer = step.peer};
    node.index = sent_[step.peer]++;
    node.first_piece = plan_.send_blocks;
    const int number = static_cast<int>(plan_.nodes.size());
    for (int block = step.run.first; block < step.run.end(); ++block) {
      after(last_write_[block]);
      last_touch_[block] = number;
      // What is read from the input may be written over elsewhere meanwhile.
      if (!node.from_input) reads_[block].push_back(number);
    }
    ++plan_.sends;
    plan_.send_blocks += step.run.count;
    push(node);
  }

  void add_write(const Step& step) {
    const bool folds = step.action == Action::add;
    const Node node{.kind = folds ? NodeKind::fold : NodeKind::receive,
                    .run = step.run,
                    .from_input = folds && from_input(step.run)};
    const int number = static_cast<int>(plan_.nodes.size());
    for (int block = step.run.first; block < step.run.end(); ++block) {
      after(last_write_[block]);
      for (const int read : reads_[block]) after(read);
      reads_[block].clear();
      last_write_[block] = last_touch_[block] = number;
      written_[block] = true;
    }
    push(node);
    add_source(number, step.peer);
  }

  void after(int node) {
    if (node >= 0) before_.push_back(node);
  }

  void push(Node node) {
    std::sort(before_.begin(), before_.end());
    before_.erase(std::unique(before_.begin(), before_.end()), before_.end());
    node.waits = static_cast<int>(before_.size());
    const int number = static_cast<int>(plan_.nodes.size());
    for (const int earlier : before_) followers_[earlier].push_back(number);
    before_.clear();
    followers_.emplace_back();
    sources_.emplace_back();
    plan_.most_blocks = std::max(plan_.most_blocks, node.run.count);
    plan_.nodes.push_back(node);
  }

  void add_source(int node, int peer) {
    plan_.arrivals[peer].push_back({node, static_cast<int>(sources_[node].size())});
    sources_[node].push_back({.peer = peer});
  }

  void finish() {
    for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
      Node& node = plan_.nodes[i];
      node.first_source = static_cast<int>(plan_.sources.size());
      node.sources = static_cast<int>(sources_[i].size());
      plan_.sources.insert(plan_.sources.end(), sources_[i].begin(), sources_[i].end());
      node.first_next = static_cast<int>(plan_.nexts.size());
      node.nexts = static_cast<int>(followers_[i].size());
      plan_.nexts.insert(plan_.nexts.end(), followers_[i].begin(), followers_[i].end());
      if (node.waits == 0) plan_.starts.push_back(static_cast<int>(i));
    }
  }

  Buffers buffers_;
  Plan plan_;
  std::vector<bool> written_;
  std::vector<bool> mixed_;
  std::vector<int> last_write_;
  std::vector<int> last_touch_;
  std::vector<std::vector<int>> reads_;  ///< since the last write
  std::vector<int> sent_;                ///< messages so far, by peer
  std::vector<int> before_;              ///< what the node in hand waits for
  std::vector<std::vector<int>> followers_;
  std::vector<std::vector<Source>> sources_;
};

// What was found out for buffers that are input and result in one holds for two as well: the nodes are the same, and
// they wait for less. So ranks may give one or two as they like.
void take_over(Plan& plan, const Plan& analysed) {
  plan.divides_at_end = analysed.divides_at_end;
  plan.sources = analysed.sources;
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    Node& node = plan.nodes[i];
    const Node& other = analysed.nodes[i];
    node.divides = other.divides;
    node.sending = other.sending;
    node.answer = other.answer;
    if (!node.from_input || node.kind != NodeKind::send) continue;
    // The input stays as it is, so it may be lent to anyone; nobody may write to it.
    const bool local = other.local;
    node.sending = local ? transport::Sending::lent : transport::Sending::copied;
    node.answer = -1;
  }
}

}  // namespace

Plan compile(const Program& program, Collective collective, int rank, int ranks, int root, Buffers buffers) {
  std::vector<bool> copied(program.blocks, false);
  while (true) {
    Compiler compiler(program, ranks, buffers, copied);
    bool again = false;
    for (int block = 0; block < program.blocks; ++block) {
      if (!compiler.mixed()[block] || copied[block]) continue;
      copied[block] = again = true;
    }
    if (again) continue;
    Plan plan = std::move(compiler.plan());
    const Run result = wanted(collective, rank, ranks, root, program.blocks);
    for (int block = 0; buffers == Buffers::two && block < program.blocks; ++block) {
      const bool missing = !compiler.written()[block] && Run(block).overlaps(result);
      if (copied[block] || missing) plan.copied.push_back(block);
    }
    plan.written = compiler.written();
    for (const int block : plan.copied) plan.written[block] = true;
    return plan;
  }
}

Plan make_plan(const PlanRequest& request) {
  const int ranks = request.setting.ranks;
  const Collective collective = request.algorithm->collective;
  const auto plan_of = [&](int rank, Buffers buffers) {
    return compile(request.algorithm->program(rank, request.setting), collective, rank, ranks, request.setting.root,
                   buffers);
  };
  Plan plan;
  int most_blocks = 1;
  if (ranks <= kMostRanksAnalysed) {
    std::vector<Plan> plans;
    plans.reserve(ranks);
    for (int rank = 0; rank < ranks; ++rank) plans.push_back(plan_of(rank, Buffers::one));
    lend(plans, request.hosts);
    find_complete_sums(plans);
    for (const Plan& other : plans) most_blocks = std::max(most_blocks, other.most_blocks);
    plan = std::move(plans[request.rank]);
    if (request.buffers == Buffers::two) {
      Plan two = plan_of(request.rank, Buffers::two);
      take_over(two, plan);
      plan = std::move(two);
    }
  } else {
    plan = plan_of(request.rank, request.buffers);
    plan.divides_at_end = true;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const Step& step : request.algorithm->program(rank, request.setting).steps) {
        most_blocks = std::max(most_blocks, step.run.count);
      }
    }
    for (Node& node : plan.nodes) {
      // Nothing waits for it, so nothing can wait for itself.
      const bool safe = node.kind == NodeKind::send && node.nexts == 0;
      if (safe && request.hosts[node.peer] == request.hosts[request.rank]) node.sending = transport::Sending::lent;
    }
  }
  plan.offers =
      std::ranges::any_of(plan.nodes, [](const Node& node) { return node.sending == transport::Sending::offered; });
  for (Node& node : plan.nodes) {
    const auto sources = std::span(plan.sources).subspan(node.first_source, node.sources);
    const bool remote = std::any_of(sources.begin(), sources.end(), [&](const Source& source) {
      return request.hosts[source.peer] != request.hosts[request.rank];
    });
    const bool replies =
        std::any_of(sources.begin(), sources.end(), [](const Source& source) { return source.reply >= 0; });
    node.piecemeal = node.kind == NodeKind::fold && remote && !replies;
  }
  plan.algorithm = request.algorithm;
  plan.most_blocks = most_blocks;
  return plan;
}

}  // namespace trireme
