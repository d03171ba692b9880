// makemore: learns words letter by letter on several ranks, shows that this is what one process would learn, and makes
// up some more.
//   trireme run -n 4 build/examples/makemore --steps 200 --check
#include "model.h"
#include "one_process.h"
#include "options.h"
#include "record.h"
#include "training.h"
#include "trireme/communicator.h"
#include "words.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <torch/torch.h>

namespace {

using makemore::Model;
using makemore::Options;

constexpr double kTolerance = 1e-10;  // of parameters near 1, in float64, after some hundred steps
constexpr int kWords = 10;

// Whether this and all other ranks have the parameters of rank 0, bit for bit.
bool identical(trireme::Communicator& world, const Model& model) {
  const torch::NoGradGuard guard;
  bool same = true;
  for (const torch::Tensor& parameter : model->parameters()) {
    const torch::Tensor copy = parameter.detach().clone();
    auto* const bytes = static_cast<std::uint8_t*>(copy.data_ptr());
    const std::span all(bytes, copy.nbytes());
    world.broadcast(all, 0);
    same = same && std::memcmp(bytes, parameter.data_ptr(), all.size()) == 0;
  }
  std::vector<std::int32_t> on_all = {same ? 1 : 0};
  world.allreduce(on_all, trireme::Op::min);
  return on_all[0] == 1;
}

std::runtime_error not_finite_in_the_end(const Options& options) {
  return makemore::not_finite("after step", static_cast<std::size_t>(options.steps), options.rate);
}

std::vector<std::string> sample(Model& model, const Options& options) {
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(options.seed);
  std::vector<std::string> words;
  for (int i = 0; i < kWords; ++i) {
    const auto word = model->sample(generator);
    if (!word) throw not_finite_in_the_end(options);
    words.push_back(*word);
  }
  return words;
}

double loss_on(Model& model, const makemore::Samples& samples) {
  const torch::NoGradGuard guard;
  return torch::nn::functional::cross_entropy(model(samples.contexts), samples.targets).item<double>();
}

std::vector<std::string> explain(trireme::Communicator& world, const std::vector<std::size_t>& buckets) {
  std::vector<std::string> sentences;
  for (const std::size_t bytes : buckets) {
    std::string sentence = world.explain("allreduce", bytes);
    if (std::ranges::find(sentences, sentence) == sentences.end()) sentences.push_back(std::move(sentence));
  }
  return sentences;
}

// What rank 0 has to say. Returns the exit status.
int conclude(const Options& options, const makemore::Record& record) {
  fmt::print("validation loss {:.4f}; words that the model makes up: {}\n", record.validation_loss,
             fmt::join(record.words, " "));
  if (!options.record.empty()) {
    fmt::print("wrote {0}/report.html, {0}/trace.json (open it in ui.perfetto.dev) and {0}/loss.json\n",
               options.record);
  }
  if (!record.identical) {
    fmt::print(stderr, "makemore: the ranks ended with different parameters; that is a bug in Trireme\n");
    return 1;
  }
  if (!record.difference) return 0;
  const bool close = *record.difference <= record.tolerance;
  fmt::print("parameters of all {} ranks: the same bits; tolerance to one process in {}: {:g}\n", record.ranks,
             record.dtype, record.tolerance);
  fmt::print("largest difference to one process: {:.3g}\n", *record.difference);
  std::fflush(stdout);
  return close ? 0 : 1;
}

int run(const Options& options) {
  trireme::Communicator world = trireme::init();
  if (!options.record.empty() && world.rank() == 0) makemore::make_folder(options.record);
  const makemore::Split data = makemore::split(makemore::read_words(options.text));
  Model model(makemore::ModelOptions{.hidden = options.hidden, .seed = options.seed}, world);
  if (options.check) model->to(torch::kDouble);
  makemore::Weights weights = makemore::weights_of(*model);

  makemore::Training training = makemore::train(world, model, data.training, options);
  makemore::Record record{.ranks = world.ranks(),
                          .steps = options.steps,
                          .batch = options.batch,
                          .hidden = options.hidden,
                          .rate = options.rate,
                          .text = options.text,
                          .dtype = options.check ? "float64" : "float32",
                          .losses = std::move(training.losses),
                          .tolerance = kTolerance,
                          .identical = identical(world, model),
                          .samples_per_second = training.samples_per_second,
                          .waited = training.waited};
  if (!options.record.empty()) record.timelines = makemore::gather_timelines(world, training.spans);
  if (world.rank() != 0) return record.identical ? 0 : 1;

  // From here on rank 0 is alone: nothing may be sent.
  model->eval();
  record.validation_loss = loss_on(model, data.validation);
  if (!std::isfinite(record.validation_loss)) throw not_finite_in_the_end(options);
  record.words = sample(model, options);
  record.choices = explain(world, training.buckets);
  if (options.check) {
    makemore::Batches joined(data.training, options.batch * world.ranks(), options.seed, 0, 1);
    record.one_process = makemore::train_in_one_process(weights, std::move(joined), options.steps, options.rate);
    record.difference = makemore::largest_difference(weights, makemore::weights_of(*model));
  }
  if (!options.record.empty()) makemore::write_record(record, options.record);
  return conclude(options, record);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    Options options;
    if (const auto status = makemore::read_options(count, arguments, options)) return *status;
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "makemore: {}\n", error.what());
    return 1;
  }
}
