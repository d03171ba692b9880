// Which samples each rank trains on.
//
//   trireme::DistributedSampler sampler(dataset.size().value(), world);
//   auto loader = torch::data::make_data_loader(dataset, sampler, 32);
//   for (std::size_t epoch = sampler.epoch(); epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);  // another order in each epoch
//     for (auto& batch : *loader) ...
//   }
//
// An epoch's order depends on seed and epoch only. Rank r of P takes elements r, r + P, r + 2P, ... of it: together,
// the ranks' k-th batches of b samples are the k-th batch of P * b samples of one process. So training may be stopped
// and go on with another number of ranks. Copies are the same sampler: the loader keeps one, and this is how a training
// loop reaches it. One thread at a time may use it.
#pragma once

#include "trireme/communicator.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <torch/data/samplers/base.h>
#include <vector>

namespace trireme {

struct DistributedSamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;

  /// All ranks get as many samples. What is left over at the end is dropped; otherwise it is filled up from the start.
  bool drop_last = false;
};

class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws UsageError if there are fewer samples than ranks.
  DistributedSampler(std::size_t samples, const Communicator& world, const DistributedSamplerOptions& options = {});
  DistributedSampler(std::size_t samples, int rank, int ranks, const DistributedSamplerOptions& options = {});

  /// Another epoch starts at its first sample; the one that is under way stays where it is.
  void set_epoch(std::size_t epoch);

  std::size_t epoch() const;
  std::uint64_t seed() const;

  /// Samples of this epoch that all ranks together are done with.
  std::size_t position() const;

  /// Tells how many samples this rank has trained on since it told last. Only for loaders with workers: they ask for
  /// batches before these are trained on, and position() would be ahead. Once told, position() is what was told.
  void trained(std::size_t samples);

  /// Samples that this rank gets from here to the end of the epoch.
  std::size_t left() const;

  /// Back to the epoch's first sample. A position that load() brought stays until samples have been taken from it: the
  /// loader calls this at the start of every epoch, the one that is gone on with among them. A new number of samples
  /// always starts the epoch anew.
  void reset(torch::optional<std::size_t> samples = torch::nullopt) override;

  /// This rank's next samples, at most so many; nothing at the end of the epoch.
  torch::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;

  /// Epoch and position, the same for all ranks. load() throws UsageError if they are of another number of samples,
  /// shuffle, seed or drop_last: the samples that are left would be others.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  /// Throws what load() would, and changes nothing.
  void check(torch::serialize::InputArchive& archive) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
