#include "record.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>

namespace makemore {
namespace {

void write(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.close();
  if (!file) throw std::runtime_error(path + " can't be written: " + std::strerror(errno));
}

std::string losses_as_json(const Record& record) {
  nlohmann::ordered_json json = {{"ranks", record.ranks}, {"steps", record.steps}, {"batch", record.batch},
                                 {"dtype", record.dtype}, {"rate", record.rate},   {"losses", record.losses}};
  if (record.difference) {
    json["losses_in_one_process"] = record.one_process;
    json["largest_difference"] = *record.difference;
  }
  json["validation_loss"] = record.validation_loss;
  return json.dump() + "\n";
}

}  // namespace

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error("the folder " + folder + " can't be made: " + error.message());
}

void write_record(const Record& record, const std::string& folder) {
  const std::filesystem::path path = folder;
  write(path / "loss.json", losses_as_json(record));
  write(path / "trace.json", chrome_trace(record.timelines));
  write(path / "report.html", draw_report(record));
}

std::size_t typical_step(const Timelines& timelines) {
  const std::vector<StepSpans>& steps = timelines.front();
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::size_t i) { return steps[i].whole().seconds(); });
  return order[order.size() / 2];
}

}  // namespace makemore
