// All that is known about a training run in the end.
#pragma once

#include "timeline.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace makemore {

struct Record {
  int ranks = 0;
  std::int64_t steps = 0, batch = 0, hidden = 0;  ///< the batch of each rank
  double rate = 0;
  std::string text, dtype;

  std::vector<double> losses = {};
  std::vector<double> one_process = {};  ///< the same in one process; empty: not compared
  std::optional<double> difference = std::nullopt;
  double tolerance = 0;
  bool identical = false;  ///< whether all ranks ended with the same parameters

  double samples_per_second = 0, waited = 0, validation_loss = 0;
  std::vector<std::string> words = {};
  std::vector<std::string> choices = {};  ///< sentences: which algorithm was chosen, and why
  Timelines timelines = {};
};

/// Writes loss.json, trace.json and report.html. Throws std::runtime_error that names what could not be written.
void write_record(const Record& record, const std::string& folder);

/// A folder that can't be had should be known before training, not after.
void make_folder(const std::string& folder);

/// report.html: one page that needs nothing else, for light and dark screens.
std::string draw_report(const Record& record);

/// The pictures in it.
std::string draw_losses(const Record& record);
std::string draw_step(const Record& record);

/// Of how many steps of the one process one is drawn.
std::size_t ring_every(std::size_t steps);

/// The index of the step that is drawn: the one of middle length of those recorded, on rank 0.
std::size_t typical_step(const Timelines& timelines);

}  // namespace makemore
