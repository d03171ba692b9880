// Data-parallel training beside PyTorch's, beside as many processes that do not talk to each other, and beside such
// that only wait for each other: what those lose is lost to any synchronous training. They are measured in turn,
// several times over, and the medians compared.
#include "command.h"
#include "figures.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <string>

namespace trireme {
namespace {

constexpr const char* kModel = "2048 4 32 20";  // width, depth, batch, steps
constexpr int kRanks = 2;
constexpr int kRounds = 5;

double step_of(const std::string& command) {
  const std::string output = output_of(fmt::format("{} {}", one_thread(), command));
  const std::size_t begin = output.find('{');
  const auto report = nlohmann::json::parse(begin == std::string::npos ? "" : output.substr(begin), nullptr, false);
  if (!report.is_object()) throw Error(fmt::format("{} gave no report", command));
  return report.at("median_ms");
}

/// Measured when first asked for.
class Training {
 public:
  double ddp() { return median(all().ddp); }
  double alone() { return median(all().alone); }
  double in_step() { return median(all().in_step); }
  double pytorch() { return median(all().pytorch); }

 private:
  struct Rounds {
    std::vector<double> ddp, alone, in_step, pytorch;
  };

  const Rounds& all() {
    for (int round = 0; static_cast<int>(rounds_.ddp.size()) < kRounds; ++round) {
      const auto ranks = [](const char* kind) {
        return fmt::format("'{}' run -n {} '{}/training_step' {} {}", TRIREME_PROGRAM, kRanks, TRIREME_BENCH_FOLDER,
                           kind, kModel);
      };
      rounds_.ddp.push_back(step_of(ranks("ddp")));
      rounds_.alone.push_back(step_of(ranks("alone")));
      rounds_.in_step.push_back(step_of(ranks("in_step")));
      rounds_.pytorch.push_back(step_of(fmt::format("'{}' '{}' {} {}", python(), TRIREME_PYTORCH_DDP, kRanks, kModel)));
    }
    return rounds_;
  }

  Rounds rounds_;
};

}  // namespace

std::vector<Figure> training_figures() {
  const auto training = std::make_shared<Training>();
  return {
      {"ddp_step_ms", [=] { return training->ddp(); }},
      {"independent_step_ms", [=] { return training->alone(); }},
      {"independent_in_step_ms", [=] { return training->in_step(); }},
      {"pytorch_ddp_step_ms", [=] { return training->pytorch(); }},
      {"ddp_vs_pytorch_gloo", [=] { return training->pytorch() / training->ddp(); }},
      {"scaling_efficiency_2_ranks", [=] { return training->alone() / training->ddp(); }},
      {"scaling_efficiency_2_ranks_in_step_only", [=] { return training->alone() / training->in_step(); }},
  };
}

}  // namespace trireme
