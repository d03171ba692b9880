#include "communicator/collectives.h"

#include <fmt/format.h>

#include <optional>

namespace trireme::test {
namespace {

/// One rank's part in one call.
class Part {
 public:
  Part(Communicator& world, const Case& c)
      : world_(world),
        case_(c),
        rank_(world.rank()),
        ranks_(static_cast<std::size_t>(world.ranks())),
        share_(c.elements),
        options_{.algorithm = c.row != nullptr ? c.row->name : std::string_view()} {
    if (!c.buffering.empty()) how_ = c.buffering[static_cast<std::size_t>(rank_) % c.buffering.size()];
  }

  std::string perform() {
    switch (case_.collective) {
      case Collective::allreduce: return allreduce();
      case Collective::reduce_scatter: return reduce_scatter();
      case Collective::allgather: return allgather();
      case Collective::broadcast: return broadcast();
      case Collective::reduce: return reduce();
      case Collective::gather: return gather();
      case Collective::scatter: return scatter();
      case Collective::all_to_all: return all_to_all();
      default: world_.barrier(options_); return "";
    }
  }

 private:
  Memory memory(std::size_t elements) { return {world_, elements, case_.dtype, how_.window}; }

  double given(int rank, std::size_t index) const {
    return static_cast<double>(value_for(case_.op, case_.dtype, case_.seed, rank, index));
  }
  double sum(std::size_t index) const {
    return reduced(case_.op, case_.dtype, case_.seed, static_cast<int>(ranks_), index);
  }
  auto own() const {
    return [this](std::size_t i) { return given(rank_, i); };
  }
  auto all() const {
    return [this](std::size_t i) { return sum(i); };
  }

  static std::string both(const std::string& out, const std::string& in) {
    if (!out.empty()) return "out: " + out;
    return in.empty() ? "" : "in: " + in;
  }

  std::string allreduce() {
    Memory in = memory(share_);
    in.fill(own());
    if (how_.in_place) {
      world_.allreduce(in.buffer(), case_.op, options_);
      return in.differs(all());
    }
    const Memory out = memory(share_);
    world_.allreduce(in.buffer(), out.buffer(), case_.op, options_);
    return both(out.differs(all()), in.differs(own()));
  }

  std::string reduce_scatter() {
    Memory in = memory(share_ * ranks_);
    in.fill(own());
    const std::size_t first = share_ * static_cast<std::size_t>(rank_);
    if (how_.in_place) {
      world_.reduce_scatter(in.buffer(), in.part(first, share_), case_.op, options_);
      return in.differs([&](std::size_t i) { return i >= first && i < first + share_ ? sum(i) : given(rank_, i); });
    }
    const Memory out = memory(share_);
    world_.reduce_scatter(in.buffer(), out.buffer(), case_.op, options_);
    return both(out.differs([&](std::size_t i) { return sum(first + i); }), in.differs(own()));
  }

  std::string allgather() {
    Memory out = memory(share_ * ranks_);
    const auto gathered = [&](std::size_t i) { return given(static_cast<int>(i / share_), i % share_); };
    if (how_.in_place) {
      const std::size_t first = share_ * static_cast<std::size_t>(rank_);
      out.fill([&](std::size_t i) { return i >= first && i < first + share_ ? given(rank_, i - first) : 1; });
      world_.allgather(out.part(first, share_), out.buffer(), options_);
      return out.differs(gathered);
    }
    Memory in = memory(share_);
    in.fill(own());
    world_.allgather(in.buffer(), out.buffer(), options_);
    return both(out.differs(gathered), in.differs(own()));
  }

  std::string broadcast() {
    Memory data = memory(share_);
    data.fill(own());
    world_.broadcast(data.buffer(), case_.root, options_);
    return data.differs([&](std::size_t i) { return given(case_.root, i); });
  }

  std::string reduce() {
    Memory in = memory(share_);
    in.fill(own());
    const bool root = rank_ == case_.root;
    if (how_.in_place) {
      world_.reduce(in.buffer(), case_.root, case_.op, options_);
      return in.differs([&](std::size_t i) { return root ? sum(i) : given(rank_, i); });
    }
    Memory out = memory(share_);
    out.fill([](std::size_t) { return 1; });
    world_.reduce(in.buffer(), out.buffer(), case_.root, case_.op, options_);
    return both(out.differs([&](std::size_t i) { return root ? sum(i) : 1; }), in.differs(own()));
  }

  std::string gather() {
    const bool root = rank_ == case_.root;
    const auto gathered = [&](std::size_t i) { return given(static_cast<int>(i / share_), i % share_); };
    if (root && how_.in_place) {
      Memory out = memory(share_ * ranks_);
      const std::size_t first = share_ * static_cast<std::size_t>(rank_);
      out.fill([&](std::size_t i) { return i >= first && i < first + share_ ? given(rank_, i - first) : 1; });
      world_.gather(out.part(first, share_), out.buffer(), case_.root, options_);
      return out.differs(gathered);
    }
    Memory in = memory(share_);
    in.fill(own());
    const Memory out = memory(root ? share_ * ranks_ : 0);
    world_.gather(in.buffer(), out.buffer(), case_.root, options_);
    return both(root ? out.differs(gathered) : "", in.differs(own()));
  }

  std::string scatter() {
    const bool root = rank_ == case_.root;
    const std::size_t first = share_ * static_cast<std::size_t>(rank_);
    Memory in = memory(root ? share_ * ranks_ : 0);
    in.fill(own());
    if (root && how_.in_place) {
      world_.scatter(in.buffer(), in.part(first, share_), case_.root, options_);
      return in.differs(own());
    }
    const Memory out = memory(share_);
    world_.scatter(in.buffer(), out.buffer(), case_.root, options_);
    return both(out.differs([&](std::size_t i) { return given(case_.root, first + i); }), in.differs(own()));
  }

  std::string all_to_all() {
    Memory in = memory(share_ * ranks_);
    in.fill(own());
    const auto turned = [&](std::size_t i) {
      return given(static_cast<int>(i / share_), static_cast<std::size_t>(rank_) * share_ + i % share_);
    };
    if (how_.in_place) {
      world_.all_to_all(in.buffer(), in.buffer(), options_);
      return in.differs(turned);
    }
    const Memory out = memory(share_ * ranks_);
    world_.all_to_all(in.buffer(), out.buffer(), options_);
    return both(out.differs(turned), in.differs(own()));
  }

  Communicator& world_;
  const Case& case_;
  int rank_;
  std::size_t ranks_;
  std::size_t share_;
  CallOptions options_;
  Buffering how_;
};

}  // namespace

bool is_rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce;
}

std::string Case::describe(int ranks) const {
  std::string text = fmt::format("{} by {}, {} ranks, {} {}, {}, root {}, ", trireme::to_string(collective),
                                 row != nullptr ? row->name : "the chosen one", ranks, elements,
                                 trireme::to_string(dtype), trireme::to_string(op), root);
  for (const Buffering& one : buffering) {
    text += fmt::format("[{}{}]", one.window ? "window" : "ordinary", one.in_place ? " in place" : "");
  }
  return text;
}

std::string perform(Communicator& communicator, const Case& c) { return Part(communicator, c).perform(); }

}  // namespace trireme::test
