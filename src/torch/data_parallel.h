// What DistributedDataParallel is made of, whatever the module's type.
#pragma once

#include "torch/notices.h"
#include "torch/reducer.h"
#include "trireme/torch/data_parallel.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::detail {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

class DataParallel::Impl {
 public:
  Impl(torch::nn::Module& module, Communicator world, const DistributedDataParallelOptions& options);

  void before_forward();
  Reducer& reducer() { return *reducer_; }
  torch::nn::Module& module() { return module_; }
  Communicator& ranks() { return ranks_; }

  /// From now on, other ranks may run out of batches; null: they may not.
  void use(std::shared_ptr<Notices> notices) {
    notices_ = notices;
    reducer_->use(std::move(notices));
  }

  void broadcast_buffers(int root);

  /// All parameters, and buffers unless they are never to be.
  void broadcast_state(int root);

 private:
  std::string what_is_wrong() const;
  void check_parameters() const;
  void check_buffers() const;

  torch::nn::Module& module_;
  Communicator ranks_;  ///< as world, but with calls of its own
  DistributedDataParallelOptions options_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> frozen_;  ///< those of them that needed no gradient when they were wrapped
  std::vector<NamedTensor> buffers_;
  std::vector<std::uint8_t> packed_;  ///< buffers on their way
  std::shared_ptr<Notices> notices_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace trireme::detail
