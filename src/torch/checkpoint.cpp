#include "trireme/torch/checkpoint.h"

#include "torch/checkpoint_file.h"
#include "torch/checkpoint_parts.h"
#include "trireme/objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

namespace trireme {
namespace {

namespace fs = std::filesystem;
using namespace detail;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".trireme";

fs::path file_of(const fs::path& folder, std::int64_t step) {
  return folder / fmt::format("{}{:012}{}", kPrefix, step, kSuffix);
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  return number(std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
}

bool was_left_aside(const fs::path& path) {
  return path.extension() == kAside && step_of(path.parent_path() / path.stem());
}

/// Newest first: the files' steps, and where they are.
std::vector<std::pair<std::int64_t, fs::path>> files_in(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (const auto step = step_of(entry.path())) files.emplace_back(*step, entry.path());
  }
  std::sort(files.rbegin(), files.rend());
  return files;
}

/// What a rank alone can find wrong, all ranks throw: no one goes on to wait for the others. SystemError if it is the
/// system's, else what is asked for.
template <typename Thrown>
void throw_alike(Communicator& world, const std::string& file, const std::function<void()>& work) {
  constexpr char kSystem = 's', kOther = 'o';
  std::string problem;  // its kind, and what it is; empty: none
  try {
    work();
  } catch (const SystemError& error) {
    problem = kSystem + std::string(error.what());
  } catch (const std::system_error& error) {
    problem = kSystem + std::string(error.what());
  } catch (const std::exception& error) {
    problem = kOther + std::string(error.what());
  }
  const std::vector<std::string> problems = all_gather_object(world, problem);
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (problems[rank].empty()) continue;
    const std::string text = fmt::format("{} (rank {}): {}", file, rank, problems[rank].substr(1));
    if (problems[rank].front() == kSystem) throw SystemError(text);
    throw Thrown(text);
  }
}

std::string_view section(const Sections& sections, const std::string& name, const char* what) {
  const auto found = sections.find(name);
  if (found == sections.end()) {
    throw UsageError(
        fmt::format("it was saved without {}: construct the Checkpoint without it too, or use another folder", what));
  }
  return found->second;
}

}  // namespace

Checkpoint::Checkpoint(Communicator world, std::string folder, torch::nn::Module& model,
                       const CheckpointOptions& options)
    : world_(std::move(world)), folder_(std::move(folder)), model_(model), options_(options) {
  if (folder_.empty()) throw UsageError("checkpoints need a folder; '.' is the present one");
  if (options.keep < 1) throw UsageError(fmt::format("keep {} checkpoints: at least one has to stay", options.keep));
}

void Checkpoint::save(std::int64_t step, const std::string& extra) {
  // Each rank sends its step along: a rank that is elsewhere would save what never was.
  const auto states = all_gather_object(world_, join_strings({std::to_string(step), random_state()}));
  std::vector<std::string> random_states;
  for (const std::string& state : states) {
    auto both = split_strings(state);
    if (both[0] != std::to_string(step) || step < 0) {
      throw UsageError(
          fmt::format("a checkpoint of step {} here and of step {} on rank {}: all ranks have to save the "
                      "same step, which may not be negative",
                      step, both[0], random_states.size()));
    }
    random_states.push_back(std::move(both[1]));
  }
  throw_alike<SystemError>(world_, file_of(folder_, step).string(), [&] {
    if (world_.rank() == 0) write(step, extra, random_states);
  });
}

void Checkpoint::write(std::int64_t step, const std::string& extra, const std::vector<std::string>& random_states) {
  std::map<std::string, std::string> contents;
  contents["step"] = std::to_string(step);
  contents["extra"] = extra;
  contents["model"] = save_model(model_);
  contents["random"] = join_strings(random_states);
  if (options_.optimizer != nullptr) contents["optimizer"] = save_optimizer(*options_.optimizer);
  if (options_.sampler != nullptr) contents["sampler"] = save_sampler(*options_.sampler);

  make_folder(folder_);
  write_file(file_of(folder_, step), seal(Sections(contents.begin(), contents.end())));
  refused_steps_.erase(step);
  remove_old(step);
}

void Checkpoint::remove_old(std::int64_t step) {
  // Files of later steps were left by a run that came further, and are not this one's to remove.
  int kept = 0;
  for (const auto& [other, path] : files_in(folder_)) {
    if (other > step) continue;
    if (refused_steps_.contains(other) || ++kept > options_.keep) fs::remove(path);
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (was_left_aside(entry.path())) fs::remove(entry.path());
  }
}

/// The bytes of the newest file that is whole; empty: there are no files. Only rank 0 looks.
std::string Checkpoint::choose() {
  if (fs::exists(folder_)) {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (!was_left_aside(entry.path())) continue;
      refused_.push_back(fmt::format("{}: it was not written to its end", entry.path().string()));
    }
  }
  const auto files = files_in(folder_);
  for (const auto& [step, path] : files) {
    try {
      std::string bytes = read_file(path);
      unseal(bytes);
      return bytes;
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", path.string(), error.what()));
    } catch (const SystemError& error) {
      // It may be whole: a disk that is not mounted, say. To go on from an older one would lose steps.
      throw SystemError(
          fmt::format("{}; see that it can be read, or move it away to take the one before it", error.what()));
    } catch (const Damaged& error) {
      refused_.push_back(fmt::format("{}: {}", path.string(), error.what()));
      refused_steps_.insert(step);
    }
  }
  if (files.empty()) return "";
  std::string reasons;
  for (const std::string& reason : refused_) reasons += "\n  " + reason;
  throw UsageError("no checkpoint can be used; to start anew, move them away:" + reasons);
}

std::optional<std::int64_t> Checkpoint::load_latest() {
  refused_.clear();
  refused_steps_.clear();
  std::string bytes;
  throw_alike<UsageError>(world_, folder_, [&] {
    if (world_.rank() == 0) bytes = choose();
  });
  std::string refused = join_strings(refused_);
  broadcast_object(world_, refused, 0);
  refused_ = split_strings(refused);
  broadcast_object(world_, bytes, 0);
  if (bytes.empty()) return std::nullopt;

  Sections sections;
  std::int64_t step = 0;
  std::vector<std::string> random_states;
  throw_alike<UsageError>(world_, folder_, [&] {
    sections = unseal(bytes);
    step = number(section(sections, "step", "a step")).value_or(0);
    random_states = split_strings(section(sections, "random", "random states"));
    const int ranks = static_cast<int>(random_states.size());
    if (ranks != world_.ranks() && !options_.other_ranks) {
      throw UsageError(
          fmt::format("the checkpoint of step {} is of {} ranks, but there are {} now: start {} ranks, or set "
                      "CheckpointOptions::other_ranks to go on without the random generators' states",
                      step, ranks, world_.ranks(), ranks));
    }
  });
  const std::string file = file_of(folder_, step).string();
  throw_alike<UsageError>(world_, file, [&] {
    check_model(section(sections, "model", "a model"), model_);
    if (options_.optimizer != nullptr) {
      check_optimizer(section(sections, "optimizer", "an optimiser"), *options_.optimizer);
    }
    if (options_.sampler != nullptr) check_sampler(section(sections, "sampler", "a sampler"), *options_.sampler);
    section(sections, "extra", "a string");
  });
  // Nothing is changed before all ranks have found all to be right.
  throw_alike<UsageError>(world_, file, [&] {
    load_model(sections["model"], model_);
    if (options_.optimizer != nullptr) load_optimizer(sections["optimizer"], *options_.optimizer);
    if (options_.sampler != nullptr) load_sampler(sections["sampler"], *options_.sampler);
    if (static_cast<int>(random_states.size()) == world_.ranks()) set_random_state(random_states[world_.rank()]);
  });
  extra_ = std::string(sections["extra"]);
  return step;
}

}  // namespace trireme
