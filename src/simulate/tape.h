// A program folded into loops, so that a simulation of many ranks does not hold all of their steps.
//
// Algorithms repeat themselves: a ring's rank does the same two steps over and over, with blocks that move by one. A
// tape keeps such a stretch once, with how far block and peer move from one pass to the next.
#pragma once

#include "trireme/program.h"

#include <vector>

namespace trireme {

class Tape {
 public:
  Tape() = default;
  explicit Tape(const std::vector<Step>& steps);

  /// Steps that are kept, in place of all that it stands for.
  std::size_t size() const { return body_.size(); }

  /// Reads the next step; false at the end.
  bool next(Step& step) {
    if (loop_ == loops_.size()) return false;
    const Loop& loop = loops_[loop_];
    const Moving& moving = body_[loop.first + at_];
    step = moving.step;
    step.run.first += pass_ * moving.block_moves;
    step.peer += pass_ * moving.peer_moves;
    if (++at_ == loop.length) {
      at_ = 0;
      if (++pass_ == loop.passes) {
        pass_ = 0;
        ++loop_;
      }
    }
    return true;
  }

 private:
  struct Moving {
    Step step;  // in the first pass
    int block_moves;
    int peer_moves;
  };
  struct Loop {
    int first;  // of its steps in body_
    int length;
    int passes;
  };

  std::vector<Moving> body_;
  std::vector<Loop> loops_;
  std::size_t loop_ = 0;
  int pass_ = 0;
  int at_ = 0;
};

}  // namespace trireme
