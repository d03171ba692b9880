#include "trireme/verify.h"

#include "program/order.h"
#include "program/symbols.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme {
namespace {

bool has_shares(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::allgather ||
         collective == Collective::gather || collective == Collective::scatter || collective == Collective::all_to_all;
}

// What every reader of a program takes for granted.
std::optional<Finding> malformed(const Schedule& schedule) {
  if (schedule.servers < 0) return Finding{.message = fmt::format("there can't be {} servers", schedule.servers)};
  if (schedule.workers() < 1) return Finding{.message = "the schedule has no rank that contributes"};
  if (schedule.blocks() < 1) {
    return Finding{.message = fmt::format("a buffer can't be cut into {} blocks", schedule.blocks())};
  }
  if (schedule.root < 0 || schedule.root >= schedule.workers()) {
    return Finding{.message = fmt::format("there is no rank {} to be root", schedule.root)};
  }
  if (has_shares(schedule.collective) && schedule.blocks() % schedule.workers() != 0) {
    return Finding{.message =
                       fmt::format("{} blocks do not make {} equal shares", schedule.blocks(), schedule.workers())};
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const Program& program = schedule.programs[rank];
    if (program.blocks != schedule.blocks()) {
      return Finding{.rank = rank,
                     .message = fmt::format("rank {} cuts its buffer into {} blocks, rank 0 into {}", rank,
                                            program.blocks, schedule.blocks())};
    }
    for (int step = 0; step < static_cast<int>(program.steps.size()); ++step) {
      const auto& [action, peer, run] = program.steps[step];
      const bool peer_exists = peer >= 0 && peer < schedule.ranks() && peer != rank;
      const bool run_exists = run.first >= 0 && run.count >= 1 && run.count <= program.blocks - run.first;
      if (peer_exists && run_exists) continue;
      return Finding{rank, step, run.first,
                     fmt::format("rank {}, step {}, block {}: there is no such {}", rank, step, run.first,
                                 peer_exists ? "block" : fmt::format("peer as {}", peer))};
    }
  }
  return {};
}

class Verifier {
 public:
  explicit Verifier(const Schedule& schedule)
      : schedule_(schedule),
        steps_(schedule),
        symbols_(schedule.ranks(), schedule.blocks()),
        values_(schedule.ranks(), std::vector<Symbol>(schedule.blocks(), kUndefined)) {}

  Proof run() {
    Proof proof;
    const Matching matching = match(schedule_, steps_);
    if (matching.finding) return {.finding = matching.finding};
    const Order order = trireme::order(schedule_, steps_, matching.partner);
    if (order.finding) return {.finding = order.finding};
    start();
    proof.finding = compute(order.steps, matching.partner);
    if (!proof.finding) proof.finding = check_end();
    proof.same_bits = same_bits();
    proof.rounds = order.rounds;
    proof.sent = most_sent();
    proof.steps = steps_.size();
    proof.messages = proof.steps / 2;
    return proof;
  }

 private:
  using Maybe = std::optional<Finding>;

  bool starts_with(int rank, int block) const {
    if (rank >= schedule_.workers()) return false;
    switch (schedule_.collective) {
      case Collective::allgather:
      case Collective::gather: return owner(block) == rank;
      case Collective::broadcast:
      case Collective::scatter: return rank == schedule_.root;
      default: return true;
    }
  }

  bool must_end_with(int rank, int block) const {
    if (rank >= schedule_.workers()) return false;
    switch (schedule_.collective) {
      case Collective::reduce_scatter:
      case Collective::scatter: return owner(block) == rank;
      case Collective::reduce:
      case Collective::gather: return rank == schedule_.root;
      default: return true;
    }
  }

  int owner(int block) const { return block / (schedule_.blocks() / schedule_.workers()); }

  void start() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      for (int block = 0; block < schedule_.blocks(); ++block) {
        if (starts_with(rank, block)) values_[rank][block] = symbols_.original(rank, block);
      }
    }
  }

  Maybe compute(const std::vector<int>& order, const std::vector<int>& partner) {
    std::vector<std::vector<Symbol>> sent(steps_.size());
    for (const int index : order) {
      const Step& step = steps_[index];
      std::vector<Symbol>& values = values_[steps_.rank(index)];
      const auto first = values.begin() + step.run.first;
      if (step.action == Action::send) {
        sent[index].assign(first, first + step.run.count);
        const auto undefined = std::find(first, first + step.run.count, kUndefined);
        if (undefined == first + step.run.count) continue;
        return at(index, static_cast<int>(undefined - values.begin()), "is sent but holds nothing yet");
      }
      const std::vector<Symbol> message = std::move(sent[partner[index]]);
      if (step.action == Action::receive) {
        std::copy(message.begin(), message.end(), first);
        continue;
      }
      for (int i = 0; i < step.run.count; ++i) {
        Maybe finding = add(index, step.run.first + i, message[i]);
        if (finding) return finding;
      }
    }
    return {};
  }

  Maybe add(int index, int block, Symbol message) {
    Symbol& value = values_[steps_.rank(index)][block];
    if (value == kUndefined) return at(index, block, "is added to but holds nothing yet");
    const int twice = symbols_.first_shared(value, message);
    if (twice >= 0 && schedule_.collective != Collective::barrier) {
      return at(index, block, fmt::format("would count rank {}'s contribution twice", twice));
    }
    value = symbols_.sum(value, message);
    return {};
  }

  Maybe check_end() const {
    for (int rank = 0; rank < schedule_.workers(); ++rank) {
      for (int block = 0; block < schedule_.blocks(); ++block) {
        if (!must_end_with(rank, block)) continue;
        const std::string wrong = wrong_at_end(rank, block);
        if (!wrong.empty()) return at_end(rank, block, wrong);
      }
    }
    return {};
  }

  // What is wrong with a block that must be right in the end; empty if nothing.
  std::string wrong_at_end(int rank, int block) const {
    const Symbol value = values_[rank][block];
    if (value == kUndefined) return "holds nothing";
    if (schedule_.collective == Collective::barrier) return wrong_parts(value);
    int source = -1;
    int source_block = block;
    switch (schedule_.collective) {
      case Collective::broadcast:
      case Collective::scatter: source = schedule_.root; break;
      case Collective::allgather:
      case Collective::gather: source = owner(block); break;
      case Collective::all_to_all: {
        const int each = schedule_.blocks() / schedule_.workers();
        source = owner(block);
        source_block = rank * each + block % each;
        break;
      }
      default: break;
    }
    if (symbols_.block(value) != source_block) return "holds what belongs in another block";
    if (source < 0) return wrong_parts(value);
    return value == symbols_.original(source, source_block)
               ? ""
               : fmt::format("does not hold rank {}'s block {}", source, source_block);
  }

  std::string wrong_parts(Symbol value) const {
    const int missing = symbols_.first_missing(value, schedule_.workers());
    return missing < 0 ? "" : fmt::format("lacks rank {}'s contribution", missing);
  }

  Maybe at(int index, int block, const std::string& message) const {
    return Finding{steps_.rank(index), steps_.step(index), block,
                   fmt::format("{}: block {} {}", describe(steps_, index), block, message)};
  }

  Maybe at_end(int rank, int block, const std::string& message) const {
    for (int index = steps_.first(rank + 1) - 1; index >= steps_.first(rank); --index) {
      const Step& step = steps_[index];
      if (step.action == Action::send || !step.run.overlaps(block)) continue;
      return Finding{rank, steps_.step(index), block,
                     fmt::format("{}: block {} {} in the end, and this step is the last to change it",
                                 describe(steps_, index), block, message)};
    }
    return Finding{rank, -1, block,
                   fmt::format("rank {}: block {} {} in the end, and no step changes it", rank, block, message)};
  }

  bool same_bits() const {
    for (int block = 0; block < schedule_.blocks(); ++block) {
      Symbol first = kUndefined;
      for (int rank = 0; rank < schedule_.workers(); ++rank) {
        if (!must_end_with(rank, block) || schedule_.collective == Collective::all_to_all) continue;
        if (first == kUndefined) first = values_[rank][block];
        if (values_[rank][block] != first && schedule_.collective != Collective::barrier) return false;
      }
    }
    return true;
  }

  double most_sent() const {
    std::int64_t most = 0;
    for (const Program& program : schedule_.programs) {
      std::int64_t blocks = 0;
      for (const Step& step : program.steps) blocks += step.action == Action::send ? step.run.count : 0;
      most = std::max(most, blocks);
    }
    return static_cast<double>(most) / schedule_.blocks();
  }

  const Schedule& schedule_;
  StepTable steps_;
  Symbols symbols_;
  std::vector<std::vector<Symbol>> values_;
};

// A proof keeps something for every block of every rank, every pair of ranks and every block of every step.
std::int64_t values_in(const Schedule& schedule) {
  std::int64_t values = static_cast<std::int64_t>(schedule.ranks()) * std::max(schedule.ranks(), schedule.blocks());
  for (const Program& program : schedule.programs) {
    for (const Step& step : program.steps) values += step.run.count;
  }
  return values;
}

}  // namespace

Proof verify(const Schedule& schedule) {
  if (std::optional<Finding> finding = malformed(schedule)) return {.finding = std::move(finding)};
  if (values_in(schedule) > kMostProofValues) {
    throw UsageError(
        fmt::format("{} ranks with {} blocks are beyond reason for a proof", schedule.ranks(), schedule.blocks()));
  }
  return Verifier(schedule).run();
}

}  // namespace trireme
