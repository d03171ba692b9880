#include "options.h"

#include "trireme/units.h"
#include "words.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cmath>

namespace makemore {
namespace {

void add_options(CLI::App& app, Options& options, std::string& bucket_bytes) {
  app.footer(
      "Training is in float32. With --check it is in float64, so that what is left of a difference is not rounding.\n"
      "\n"
      "Examples:\n"
      "  trireme run -n 4 build/examples/makemore --steps 200 --check\n"
      "  trireme run --no-prefix -n 4 build/examples/makemore --text my.txt --steps 2000 --record folder");
  options.text = kDictionary;
  const auto whole = CLI::Range(std::int64_t{1}, std::int64_t{1} << 40);
  app.add_option("--steps", options.steps, "how long to train")->check(whole)->capture_default_str();
  app.add_option("--batch", options.batch, "samples a rank takes in a step")->check(whole)->capture_default_str();
  app.add_option("--hidden", options.hidden, "width of the hidden layer")->check(whole)->capture_default_str();
  app.add_option("--text", options.text, "a file with the words to learn from")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the first parameters, the order of samples and the words in the end")
      ->capture_default_str();
  app.add_option("--rate", options.rate, "learning rate")->capture_default_str();
  app.add_option("--bucket-bytes", bucket_bytes,
                 "reduce gradients in buckets of so many bytes, such as 8KiB; by default a model this small is one")
      ->type_name("BYTES");
  app.add_flag("--check", options.check,
               "train in one process on the joined batches as well, and fail if that ends with other parameters");
  app.add_option("--record", options.record, "write report.html, trace.json (for Perfetto) and loss.json there")
      ->type_name("FOLDER");
  app.add_flag("--quiet", options.quiet, "do not show progress");
}

}  // namespace

std::optional<int> read_options(int count, char** arguments, Options& options) {
  CLI::App app("A model of letters learns words, data-parallel; in the end it makes up some more.",
               "trireme run -n RANKS makemore");
  std::string bucket_bytes;
  add_options(app, options, bucket_bytes);
  constexpr int kUsage = 2;
  try {
    app.parse(count, arguments);
    if (!bucket_bytes.empty()) options.bucket_bytes = trireme::parse_bytes(bucket_bytes);
    if (!bucket_bytes.empty() && options.bucket_bytes == 0)
      throw trireme::UsageError("--bucket-bytes: a bucket of 0 bytes holds nothing");
    if (!(options.rate > 0) || !std::isfinite(options.rate))
      throw trireme::UsageError("--rate takes a number above 0, such as 0.1");
    return std::nullopt;
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "makemore: {}; see 'makemore --help'\n", error.what());
  } catch (const trireme::UsageError& error) {
    fmt::print(stderr, "makemore: {}\n", error.what());
  }
  return kUsage;
}

}  // namespace makemore
