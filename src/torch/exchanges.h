// What a rank tells and hears in the midst of forward and backward, when it computes nothing meanwhile.
#pragma once

#include "trireme/torch/data_parallel.h"

#include <memory>
#include <utility>
#include <vector>

namespace trireme::detail {

/// Those of a model since its last forward began.
using Exchanges = std::vector<StepTimes::Span>;

/// Notes the time from its beginning to its end as one. Without `exchanges`, nobody wants to know.
class [[nodiscard]] NotedExchange {
 public:
  explicit NotedExchange(std::shared_ptr<Exchanges> exchanges) : exchanges_(std::move(exchanges)) {}
  ~NotedExchange() {
    if (exchanges_) exchanges_->push_back({begin_, StepTimes::Clock::now()});
  }
  NotedExchange(const NotedExchange&) = delete;
  NotedExchange& operator=(const NotedExchange&) = delete;

 private:
  std::shared_ptr<Exchanges> exchanges_;
  StepTimes::Clock::time_point begin_ = StepTimes::Clock::now();
};

}  // namespace trireme::detail
