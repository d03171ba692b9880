// trireme algorithms: the registry as a table.
#include "trireme/algorithms.h"

#include "cli/commands.h"
#include "cli/files.h"
#include "cli/options.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <span>

namespace trireme::cli {
namespace {

struct Options {
  std::string collective;
  bool json = false;
  bool markdown = false;
};

void print_markdown(std::span<const Algorithm> rows) {
  fmt::print(
      "| algorithm | ranks | rounds | buffers sent | how | reference |\n| --- | --- | --- | --- | --- | --- |\n");
  for (const Algorithm& row : rows) {
    fmt::print("| `{}` | {} | {} | {} | {} | {} |\n", full_name(row), row.takes, row.rounds.text, row.sent.text,
               row.description, row.reference);
  }
}

int list(const Options& options) {
  const auto rows = options.collective.empty() ? algorithms() : algorithms(parse_collective(options.collective));
  if (options.markdown) {
    print_markdown(rows);
    return 0;
  }
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  if (!options.json) fmt::print("{:33} {:15} {:33} {:26} {}\n", "algorithm", "ranks", "rounds", "buffers sent", "how");
  for (const Algorithm& row : rows) {
    if (!options.json) {
      fmt::print("{:33} {:15} {:33} {:26} {}\n", full_name(row), row.takes, row.rounds.text, row.sent.text,
                 row.description);
      continue;
    }
    all.push_back({{"algorithm", full_name(row)},
                   {"collective", to_string(row.collective)},
                   {"ranks", row.takes},
                   {"rounds", row.rounds.text},
                   {"sent", row.sent.text},
                   {"segmented", row.segmented},
                   {"description", row.description},
                   {"reference", row.reference}});
  }
  if (options.json) print_json(all);
  return 0;
}

}  // namespace

void add_algorithms(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("algorithms", "List the algorithms, with the rounds and bytes they claim");
  command->footer("Example:\n  trireme algorithms --collective broadcast");
  const auto options = std::make_shared<Options>();
  add_collective(*command, options->collective);
  command->add_flag("--json", options->json, "as JSON, with references");
  command->add_flag("--markdown", options->markdown, "as a table for a document, with references");
  command->callback([&run, options] { run = [options] { return list(*options); }; });
}

}  // namespace trireme::cli
