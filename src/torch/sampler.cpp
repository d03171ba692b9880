#include "trireme/torch/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <utility>

namespace trireme {
namespace {

/// The order of an epoch. Written out, because the standard leaves to each library how std::shuffle draws.
std::vector<std::size_t> permutation(std::size_t samples, std::uint64_t seed, std::uint64_t epoch) {
  std::seed_seq both{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                     static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)};
  std::mt19937_64 random(both);
  std::vector<std::size_t> order(samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = samples; i > 1; --i) {
    // Numbers from the incomplete stretch at the end of the range would make some places likelier than others.
    const std::uint64_t whole = random.max() - random.max() % i;
    std::uint64_t drawn = random();
    while (drawn >= whole) drawn = random();
    std::swap(order[i - 1], order[drawn % i]);
  }
  return order;
}

void check_size(std::size_t samples, int rank, int ranks) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw UsageError(
        fmt::format("a sampler for rank {} of {}: ranks are numbered from 0, and there is at least one", rank, ranks));
  }
  if (samples < static_cast<std::size_t>(ranks)) {
    throw UsageError(
        fmt::format("a dataset of {} samples is too small for {} ranks: each needs at least one; start "
                    "fewer ranks, or give the dataset's size and not that of one rank's share",
                    samples, ranks));
  }
}

std::uint64_t read(torch::serialize::InputArchive& archive, const char* name) {
  c10::IValue value;
  archive.read(name, value);
  return static_cast<std::uint64_t>(value.toInt());
}

}  // namespace

struct DistributedSampler::State {
  std::size_t left() const {
    if (taken >= samples) return 0;
    return (samples - taken + (options.drop_last ? 0 : ranks - 1)) / ranks;
  }

  void start_at(std::size_t position) {
    start = taken = position;
    if (told) told = position;
  }

  std::size_t samples, rank, ranks;
  DistributedSamplerOptions options;

  std::size_t epoch = 0;
  std::size_t start = 0;                           // where this epoch was begun or gone on with
  std::size_t taken = 0;                           // of this epoch, by all ranks: the filling at the end counts too
  std::optional<std::size_t> told = std::nullopt;  // the same, as trained() has it
  bool loaded = false;                             // the position came by load(), and nothing has been taken since
  std::vector<std::size_t> order = {};             // of this epoch; empty: not made yet
};

DistributedSampler::DistributedSampler(std::size_t samples, const Communicator& world,
                                       const DistributedSamplerOptions& options)
    : DistributedSampler(samples, world.rank(), world.ranks(), options) {}

DistributedSampler::DistributedSampler(std::size_t samples, int rank, int ranks,
                                       const DistributedSamplerOptions& options) {
  check_size(samples, rank, ranks);
  state_ = std::make_shared<State>(State{.samples = samples,
                                         .rank = static_cast<std::size_t>(rank),
                                         .ranks = static_cast<std::size_t>(ranks),
                                         .options = options});
}

void DistributedSampler::set_epoch(std::size_t epoch) {
  if (epoch == state_->epoch) return;
  state_->epoch = epoch;
  state_->order.clear();
  state_->loaded = false;
  state_->start_at(0);
}

std::size_t DistributedSampler::epoch() const { return state_->epoch; }
std::uint64_t DistributedSampler::seed() const { return state_->options.seed; }
std::size_t DistributedSampler::position() const { return state_->told.value_or(state_->taken); }
std::size_t DistributedSampler::left() const { return state_->left(); }

void DistributedSampler::trained(std::size_t samples) {
  const std::size_t position = state_->told.value_or(state_->start) + samples * state_->ranks;
  if (position > state_->taken) {
    throw UsageError(
        fmt::format("trained on {} samples more, {} of this epoch on all ranks, but only {} were given out", samples,
                    position, state_->taken));
  }
  state_->told = position;
}

void DistributedSampler::reset(torch::optional<std::size_t> samples) {
  if (samples && *samples != state_->samples) {
    check_size(*samples, static_cast<int>(state_->rank), static_cast<int>(state_->ranks));
    state_->samples = *samples;
    state_->order.clear();
    state_->loaded = false;
  }
  if (!state_->loaded) state_->start_at(0);
}

torch::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  State& state = *state_;
  state.loaded = false;
  const std::size_t count = std::min(batch_size, state.left());
  if (count == 0) return torch::nullopt;
  if (state.options.shuffle && state.order.empty()) {
    state.order = permutation(state.samples, state.options.seed, state.epoch);
  }
  std::vector<std::size_t> batch(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t place = (state.taken + state.rank + i * state.ranks) % state.samples;
    batch[i] = state.options.shuffle ? state.order[place] : place;
  }
  state.taken += count * state.ranks;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  const auto write = [&](const char* name, std::uint64_t value) {
    archive.write(name, c10::IValue(static_cast<std::int64_t>(value)));
  };
  write("samples", state_->samples);
  write("epoch", state_->epoch);
  write("shuffle", state_->options.shuffle ? 1 : 0);
  write("seed", state_->options.seed);
  write("drop_last", state_->options.drop_last ? 1 : 0);
  write("position", position());
}

void DistributedSampler::check(torch::serialize::InputArchive& archive) const {
  const std::size_t samples = read(archive, "samples");
  if (samples != state_->samples) {
    throw UsageError(
        fmt::format("the saved sampler is of a dataset of {} samples, this one of {}: a position in one "
                    "means nothing in the other",
                    samples, state_->samples));
  }
  const auto compare = [&](const char* name, std::uint64_t here) {
    const std::uint64_t saved = read(archive, name);
    if (saved == here) return;
    throw UsageError(
        fmt::format("the saved sampler has {} {}, this one {}: the samples that are left of the epoch would be others; "
                    "construct it with DistributedSamplerOptions as they were",
                    name, saved, here));
  };
  compare("shuffle", state_->options.shuffle ? 1 : 0);
  if (state_->options.shuffle) compare("seed", state_->options.seed);
  compare("drop_last", state_->options.drop_last ? 1 : 0);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  check(archive);
  state_->epoch = read(archive, "epoch");
  state_->order.clear();
  state_->loaded = true;
  state_->start_at(read(archive, "position"));
}

}  // namespace trireme
