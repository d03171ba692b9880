// Runs a schedule on numbers, step by step in a random order, and looks whether the collective's promise was kept.
//
// This shares nothing with the verifier, so that each can find the other wrong. It moves one step at a time wherever
// one can move:
//   - a send begins when the earlier writes of its blocks have ended and the earlier sends to its peer have begun;
//     buffered, it ends at once; else it ends when its message has been taken over by a receive that has begun;
//   - a receive or add begins when the earlier steps on its blocks, and the earlier ones from its peer, have begun; its
//     message then comes in to the side; it ends, and changes its blocks, when all those have ended.
// Blocks that a rank does not start with hold garbage. Sums are of random 64-bit numbers, modulo 2^64: a wrong one is
// right by chance once in 2^64 times. A barrier's numbers are sets of ranks, and added by union.
#pragma once

#include "support/random.h"
#include "trireme/program.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trireme::test {

enum class Sends : std::uint8_t {
  waiting,   ///< for their receives
  buffered,  ///< and ended at once
};

class BruteForce {
 public:
  explicit BruteForce(const Schedule& schedule) : schedule_(schedule) {
    for (int rank = 0; rank < schedule.ranks(); ++rank) add_steps(rank);
    for (const auto& [channel, sends] : sends_) pair_up(sends, receives_[channel]);
  }

  /// What went wrong; empty if the promise was kept.
  std::string run(Sends sends, std::uint64_t seed) {
    sends_wait_ = sends == Sends::waiting;
    seed_ = seed;
    problem_.clear();
    start();
    move_all();
    if (problem_.empty()) check_all_ended();
    if (problem_.empty()) check_values();
    return problem_;
  }

 private:
  using Value = std::uint64_t;
  using Channel = std::pair<int, int>;  // from, to

  struct Move {
    Step step;
    int rank;
    int number;                        // of the step in its program
    std::vector<int> writes_before{};  // moves of this rank on the same blocks
    std::vector<int> reads_before{};   // sends, likewise; of a send, none matter
    int before_on_channel = -1;
    int partner = -1;
    std::vector<int> wakes{};  // moves that may be possible once this one has begun or ended
  };

  struct State {
    bool begun = false;
    bool ended = false;
    bool arrived = false;  // of a receive: its message is here
    std::vector<Value> message{};
  };

  void add_steps(int rank) {
    const int first = static_cast<int>(moves_.size());
    for (const Step& step : schedule_.programs[rank].steps) {
      const int index = static_cast<int>(moves_.size());
      const bool sends = step.action == Action::send;
      Move move{.step = step, .rank = rank, .number = index - first};
      for (int earlier = first; earlier < index; ++earlier) {
        const Step& other = moves_[earlier].step;
        if (!step.run.overlaps(other.run)) continue;
        if (other.action != Action::send) {
          move.writes_before.push_back(earlier);
        } else if (!sends) {
          move.reads_before.push_back(earlier);
        } else {
          continue;
        }
        moves_[earlier].wakes.push_back(index);
      }
      std::vector<int>& channel = sends ? sends_[{rank, step.peer}] : receives_[{step.peer, rank}];
      if (!channel.empty()) {
        move.before_on_channel = channel.back();
        moves_[channel.back()].wakes.push_back(index);
      }
      channel.push_back(index);
      moves_.push_back(std::move(move));
    }
  }

  void pair_up(const std::vector<int>& sends, const std::vector<int>& receives) {
    for (std::size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
      moves_[sends[i]].partner = receives[i];
      moves_[receives[i]].partner = sends[i];
    }
  }

  // Moves in an order that the seed decides, until none is possible.
  void move_all() {
    Random random(seed_);
    const bool skewed = random.chance(2);  // then some moves are always late
    std::vector<int> hopeful(moves_.size());
    for (int i = 0; i < static_cast<int>(hopeful.size()); ++i) hopeful[i] = i;
    std::vector<bool> listed(moves_.size(), true);
    while (!hopeful.empty() && problem_.empty()) {
      int at = random.below(static_cast<int>(hopeful.size()));
      const int rival = random.below(static_cast<int>(hopeful.size()));
      if (skewed && mix(seed_, hopeful[rival]) < mix(seed_, hopeful[at])) at = rival;
      const int index = hopeful[at];
      hopeful[at] = hopeful.back();
      hopeful.pop_back();
      listed[index] = false;
      if (!try_move(index)) continue;
      const auto list = [&](int other) {
        if (other < 0 || listed[other]) return;
        listed[other] = true;
        hopeful.push_back(other);
      };
      list(index);
      list(moves_[index].partner);
      for (const int other : moves_[index].wakes) list(other);
    }
  }

  bool all_begun(const std::vector<int>& moves) const {
    return std::all_of(moves.begin(), moves.end(), [&](int move) { return states_[move].begun; });
  }

  bool all_ended(const std::vector<int>& moves) const {
    return std::all_of(moves.begin(), moves.end(), [&](int move) { return states_[move].ended; });
  }

  // Lets one thing happen at this step if anything can.
  bool try_move(int index) {
    const bool sends = moves_[index].step.action == Action::send;
    if (states_[index].ended) return false;
    if (!states_[index].begun) return sends ? begin_send(index) : begin_receive(index);
    return sends ? end_send(index) : end_receive(index);
  }

  bool begin_send(int index) {
    const Move& move = moves_[index];
    if (!all_ended(move.writes_before)) return false;
    if (move.before_on_channel >= 0 && !states_[move.before_on_channel].begun) return false;
    states_[index].begun = true;
    if (!sends_wait_) {
      states_[index].message = read(move);
      states_[index].ended = true;
    }
    return true;
  }

  // The message is read as late as can be: until then nobody may have changed it.
  bool end_send(int index) {
    const Move& move = moves_[index];
    if (move.partner < 0 || !states_[move.partner].begun) return false;
    take_over(move, read(move));
    states_[index].ended = true;
    return true;
  }

  bool begin_receive(int index) {
    const Move& move = moves_[index];
    if (!all_begun(move.writes_before) || !all_begun(move.reads_before)) return false;
    if (move.before_on_channel >= 0 && !states_[move.before_on_channel].begun) return false;
    states_[index].begun = true;
    return true;
  }

  bool end_receive(int index) {
    const Move& move = moves_[index];
    if (move.partner < 0) return false;
    if (!sends_wait_ && !states_[index].arrived && states_[move.partner].ended) {
      take_over(moves_[move.partner], states_[move.partner].message);
      return problem_.empty();
    }
    if (!states_[index].arrived) return false;
    if (!all_ended(move.writes_before) || !all_ended(move.reads_before)) return false;
    if (move.before_on_channel >= 0 && !states_[move.before_on_channel].ended) return false;
    const std::vector<Value>& message = states_[index].message;
    Value* const blocks = &values_[move.rank][move.step.run.first];
    for (std::size_t i = 0; i < message.size(); ++i) {
      blocks[i] = move.step.action == Action::add ? sum(blocks[i], message[i]) : message[i];
    }
    states_[index].ended = true;
    return true;
  }

  void take_over(const Move& send, std::vector<Value> message) {
    State& receive = states_[send.partner];
    if (static_cast<int>(message.size()) != moves_[send.partner].step.run.count)
      problem_ = "a message has another size";
    receive.message = std::move(message);
    receive.arrived = true;
  }

  std::vector<Value> read(const Move& move) const {
    const auto first = values_[move.rank].begin() + move.step.run.first;
    return {first, first + move.step.run.count};
  }

  Value sum(Value a, Value b) const { return schedule_.collective == Collective::barrier ? a | b : a + b; }

  // What a rank would start with if its collective gave it every block.
  Value original(int rank, int block) const {
    if (schedule_.collective == Collective::barrier) return Value{1} << rank;
    return mix(seed_, rank, block);
  }

  Value garbage(int rank, int block) const {
    return schedule_.collective == Collective::barrier ? 0 : mix(seed_, rank, block, 1);
  }

  int share() const { return std::max(1, schedule_.blocks() / schedule_.workers()); }

  bool starts_with(int rank, int block) const {
    if (rank >= schedule_.workers()) return false;
    switch (schedule_.collective) {
      case Collective::allgather:
      case Collective::gather: return block / share() == rank;
      case Collective::broadcast:
      case Collective::scatter: return rank == schedule_.root;
      case Collective::allreduce:
      case Collective::reduce_scatter:
      case Collective::reduce:
      case Collective::all_to_all:
      case Collective::barrier: return true;
    }
    return false;
  }

  void start() {
    values_.assign(schedule_.ranks(), std::vector<Value>(schedule_.blocks()));
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      for (int block = 0; block < schedule_.blocks(); ++block) {
        values_[rank][block] = starts_with(rank, block) ? original(rank, block) : garbage(rank, block);
      }
    }
    states_.assign(moves_.size(), State{});
  }

  void check_all_ended() {
    for (std::size_t i = 0; i < moves_.size(); ++i) {
      if (states_[i].ended && moves_[i].partner >= 0) continue;
      problem_ = "rank " + std::to_string(moves_[i].rank) + ", step " + std::to_string(moves_[i].number) +
                 (states_[i].ended ? " sends what nobody takes" : " never ends");
      return;
    }
  }

  Value total(int block) const {
    Value total = 0;
    for (int rank = 0; rank < schedule_.workers(); ++rank) total = sum(total, original(rank, block));
    return total;
  }

  void check_values() {
    for (int rank = 0; rank < schedule_.workers(); ++rank) {
      for (int block = 0; block < schedule_.blocks(); ++block) check_value(rank, block);
    }
  }

  void check_value(int rank, int block) {
    const int owner = block / share();
    Value expected = values_[rank][block];  // whatever it is
    switch (schedule_.collective) {
      case Collective::allreduce:
      case Collective::barrier: expected = total(block); break;
      case Collective::reduce_scatter:
        if (owner == rank) expected = total(block);
        break;
      case Collective::allgather: expected = original(owner, block); break;
      case Collective::broadcast: expected = original(schedule_.root, block); break;
      case Collective::reduce:
        if (rank == schedule_.root) expected = total(block);
        break;
      case Collective::gather:
        if (rank == schedule_.root) expected = original(owner, block);
        break;
      case Collective::scatter:
        if (owner == rank) expected = original(schedule_.root, block);
        break;
      case Collective::all_to_all: expected = original(owner, rank * share() + block % share()); break;
    }
    if (values_[rank][block] == expected) return;
    problem_ = "rank " + std::to_string(rank) + " ends with a wrong block " + std::to_string(block);
  }

  const Schedule& schedule_;
  std::vector<Move> moves_;
  std::map<Channel, std::vector<int>> sends_;
  std::map<Channel, std::vector<int>> receives_;

  bool sends_wait_ = true;
  std::uint64_t seed_ = 0;
  std::string problem_;
  std::vector<State> states_;
  std::vector<std::vector<Value>> values_;
};

/// What goes wrong in any of `tries` runs of each kind; empty if nothing does.
inline std::string brute_force(const Schedule& schedule, int tries, std::uint64_t seed) {
  BruteForce force(schedule);
  for (int i = 0; i < tries; ++i) {
    for (const Sends sends : {Sends::waiting, Sends::buffered}) {
      const std::uint64_t run_seed = mix(seed, i, static_cast<int>(sends));
      const std::string problem = force.run(sends, run_seed);
      if (problem.empty()) continue;
      return problem + " (" + (sends == Sends::waiting ? "waiting" : "buffered") + " sends, seed " +
             std::to_string(run_seed) + ")";
    }
  }
  return {};
}

}  // namespace trireme::test
