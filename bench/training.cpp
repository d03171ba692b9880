// Data-parallel training beside PyTorch's, beside as many processes that do not talk to each other, and beside such
// that only wait for each other: what those lose is lost to any synchronous training. They are measured in turn,
// several times over. A ratio is the median of those within a round: a machine is slow or quick for longer than that.
#include "command.h"
#include "figures.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

namespace trireme {
namespace {

constexpr const char* kModel = "2048 4 32 20";  // width, depth, batch, steps
constexpr int kRanks = 2;
constexpr int kRounds = 7;

double step_of(const std::string& command) {
  const std::string output = output_of(fmt::format("{} {}", one_thread(), command));
  const std::size_t begin = output.find('{');
  const auto report = nlohmann::json::parse(begin == std::string::npos ? "" : output.substr(begin), nullptr, false);
  if (!report.is_object()) throw Error(fmt::format("{} gave no report", command));
  return report.at("median_ms");
}

/// Milliseconds a step.
struct Round {
  double ddp, alone, in_step, pytorch;
};

/// Measured when first asked for.
class Training {
 public:
  double step(double Round::*who) {
    return median_of([&](const Round& round) { return round.*who; });
  }
  double ratio(double Round::*of, double Round::*to) {
    return median_of([&](const Round& round) { return round.*of / round.*to; });
  }

 private:
  template <typename Value>
  double median_of(const Value& value) {
    std::vector<double> values;
    for (const Round& round : all()) values.push_back(value(round));
    return median(values);
  }

  const std::vector<Round>& all() {
    while (static_cast<int>(rounds_.size()) < kRounds) {
      const auto ranks = [](const char* kind) {
        return fmt::format("'{}' run -n {} '{}/training_step' {} {}", TRIREME_PROGRAM, kRanks, TRIREME_BENCH_FOLDER,
                           kind, kModel);
      };
      rounds_.push_back(
          {.ddp = step_of(ranks("ddp")),
           .alone = step_of(ranks("alone")),
           .in_step = step_of(ranks("in_step")),
           .pytorch = step_of(fmt::format("'{}' '{}' {} {}", python(), TRIREME_PYTORCH_DDP, kRanks, kModel))});
    }
    return rounds_;
  }

  std::vector<Round> rounds_;
};

}  // namespace

std::vector<Figure> training_figures() {
  const auto training = std::make_shared<Training>();
  return {
      {"ddp_step_ms", [=] { return training->step(&Round::ddp); }},
      {"independent_step_ms", [=] { return training->step(&Round::alone); }},
      {"independent_in_step_ms", [=] { return training->step(&Round::in_step); }},
      {"pytorch_ddp_step_ms", [=] { return training->step(&Round::pytorch); }},
      {"ddp_vs_pytorch_gloo", [=] { return training->ratio(&Round::pytorch, &Round::ddp); }},
      {"scaling_efficiency_2_ranks", [=] { return training->ratio(&Round::alone, &Round::ddp); }},
      {"scaling_efficiency_2_ranks_in_step_only", [=] { return training->ratio(&Round::alone, &Round::in_step); }},
  };
}

}  // namespace trireme
