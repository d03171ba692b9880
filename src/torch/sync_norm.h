// What a batch norm shares with its twins on other ranks: the statistics of the joined batch, and the sums that its
// backward needs. trireme::SyncBatchNorm and converted batch norms are both made of it.
#pragma once

#include "torch/exchanges.h"
#include "trireme/communicator.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <vector>

namespace trireme::detail {

class Notices;
enum class Announced : std::int64_t;

/// Running statistics, and what part of them a batch replaces. Undefined tensors: none are kept.
struct Running {
  torch::Tensor mean;
  torch::Tensor var;
  double factor = 0;
  torch::Tensor batches = {};  ///< counts those that entered; undefined: somebody else does
};

/// Of the values of each channel, in double.
struct Moments {
  double count = 0;
  torch::Tensor mean;
  torch::Tensor squares;  ///< the sum of squared differences to the mean
};

class SyncNorm : public std::enable_shared_from_this<SyncNorm> {
 public:
  using Names = std::shared_ptr<const std::vector<std::string>>;

  /// Without ranks it is by itself. `name` is for messages. Uses `ranks` as it is: nobody else should.
  SyncNorm(std::optional<Communicator> ranks, std::int64_t features, int correction, const std::string& name);

  /// One of several that share `ranks`: that `number` of `names`, which ranks list alike. What ranks bring together has
  /// to be of the same one.
  SyncNorm(std::optional<Communicator> ranks, std::int64_t features, int correction, Names names, std::size_t number);

  /// By the statistics of the joined batch, which also enter the running ones.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                        const Running& running, double eps);

  /// What keeps this from being an input; empty: nothing.
  std::string what_is_wrong_with(const torch::Tensor& input) const;

  /// This rank can't do its part: throws that, and lets the others know.
  [[noreturn]] void refuse(const std::string& why) const;

  /// From now on forward and backward announce their collectives, as that module; nullptr: no more.
  void announce_to(std::shared_ptr<Notices> notices, std::int64_t index);

  void announce(Announced what);

  /// Forward and backward note there how long they exchange statistics, as long as there is somebody to see it.
  void note_in(const std::shared_ptr<Exchanges>& exchanges) { exchanges_ = exchanges; }

  /// Take part in a collective that others announced, as a rank without samples.
  void shadow_statistics(const Running& running);
  void shadow_sums();

  /// The moments of all ranks' values, from those of each; the running statistics follow them. Throws, on all ranks, if
  /// one came with another layer.
  Moments join(const Moments& mine, const Running& running);

  /// The sums of what ranks have. Throws as join() does.
  torch::Tensor add_up(const torch::Tensor& mine);

  std::optional<Communicator> ranks() const { return ranks_; }
  std::int64_t features() const { return features_; }
  int correction() const { return correction_; }
  const std::string& name() const { return (*names_)[number_]; }

 private:
  void check_same(const std::vector<double>& numbers, const char* what) const;

  std::optional<Communicator> ranks_;
  std::int64_t features_;
  int correction_;
  Names names_;
  std::size_t number_;
  std::shared_ptr<Notices> notices_;
  std::int64_t index_ = 0;
  std::weak_ptr<Exchanges> exchanges_;
};

/// How one more batch enters a batch norm's buffers. It counts when it does: an input may yet be refused.
template <typename Norm>
Running next_batch(Norm& norm) {
  if (!norm.options.track_running_stats()) return {};
  const auto momentum = norm.options.momentum();
  return {norm.running_mean, norm.running_var,
          momentum ? *momentum : 1.0 / (norm.num_batches_tracked.template item<double>() + 1),
          norm.num_batches_tracked};
}

/// A batch norm in a tree of modules that ranks compute together.
struct SyncedLayer {
  std::string name;
  std::shared_ptr<SyncNorm> norm;
  std::function<Running()> next_batch;

  void shadow_statistics() const { norm->shadow_statistics(next_batch()); }
  void shadow_sums() const { norm->shadow_sums(); }
};

/// All of them, in the order of the tree, which is the same on all ranks. They are valid as long as the modules live.
std::vector<SyncedLayer> synced_layers(torch::nn::Module& root);

}  // namespace trireme::detail
