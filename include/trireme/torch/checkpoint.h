// Checkpoints: training that was stopped goes on bit for bit as if it never had been.
//
//   trireme::Checkpoint checkpoint(world, "checkpoints", *net, {.optimizer = &optimizer, .sampler = &sampler});
//   std::int64_t step = checkpoint.load_latest().value_or(0);
//   ...
//   if (++step % 1000 == 0) checkpoint.save(step);
//
// A checkpoint is one file, step-N.trireme, and holds the model's parameters and buffers, the optimiser, the sampler's
// place in the epoch, the state of every rank's random generator, the step and a string of the user's. Of gradients it
// has only which parameters had one; loading makes them zeros, as zero_grad() does: save between steps. Rank 0 writes
// and reads; a folder that the others see is not needed. What is written is that of rank 0: models and optimisers are
// the same on all ranks of data-parallel training.
// A file is written aside and renamed, so it is there whole or not at all, and it is checked before it is used: one
// that is damaged is refused, and the one before it taken. One folder is for one training run. All ranks make the same
// calls.
#pragma once

#include "trireme/communicator.h"
#include "trireme/torch/sampler.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <vector>

namespace trireme {

struct CheckpointOptions {
  torch::optim::Optimizer* optimizer = nullptr;  ///< not given: it is neither saved nor loaded
  DistributedSampler* sampler = nullptr;         ///< the same

  int keep = 2;  ///< so many of the newest stay in the folder

  /// Takes checkpoints of another number of ranks too. The random generators stay as they are then.
  bool other_ranks = false;
};

class Checkpoint {
 public:
  /// Model, optimiser and sampler are referred to, and have to outlive it.
  Checkpoint(Communicator world, std::string folder, torch::nn::Module& model, const CheckpointOptions& options = {});

  /// When it returns on any rank, the checkpoint is safe on rank 0's disk. Throws SystemError on all ranks if that
  /// failed.
  void save(std::int64_t step, const std::string& extra = "");

  /// Loads the newest checkpoint that is whole, and returns its step; nothing if there are none. Throws UsageError on
  /// all ranks, and changes nothing, if it is of another model, optimiser, dataset, order of samples or number of
  /// ranks; and if there are checkpoints, but each is damaged: training does not silently start anew. Throws
  /// SystemError on all ranks if the system does not let the newest be read: it may be whole.
  std::optional<std::int64_t> load_latest();

  /// The string that was saved with what load_latest() loaded.
  const std::string& extra() const { return extra_; }

  /// Which files the last load_latest() did not take, and why: a sentence for each, the same on all ranks.
  const std::vector<std::string>& refused() const { return refused_; }

 private:
  std::string choose();
  void write(std::int64_t step, const std::string& extra, const std::vector<std::string>& random_states);
  void remove_old(std::int64_t step);

  Communicator world_;
  std::string folder_;
  torch::nn::Module& model_;
  CheckpointOptions options_;
  std::string extra_;
  std::vector<std::string> refused_;
  std::set<std::int64_t> refused_steps_;  // rank 0's: such files do not count as kept
};

}  // namespace trireme
