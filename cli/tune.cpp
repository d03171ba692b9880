// trireme tune: measures the network between the ranks it is started as, writes what selection needs to know, and shows
// how far the simulator is from the truth.
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/median.h"
#include "cli/options.h"
#include "communicator/operation.h"
#include "communicator/selection.h"
#include "communicator/tuning.h"
#include "kernels/kernels.h"
#include "trireme/algorithms.h"
#include "trireme/communicator.h"
#include "trireme/simulate.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

namespace trireme::cli {
namespace {

struct Options {
  std::string output;
  std::string bytes = "1MiB,4MiB,16MiB";
  bool no_check = false;
  bool json = false;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The slowest rank's times, one a repeat; the same on every rank.
std::vector<double> times_of(Communicator& world, int repeats, const std::function<void()>& work) {
  std::vector<double> times;
  work();
  for (int i = 0; i < repeats; ++i) {
    world.barrier();
    times.push_back(seconds_of(work));
  }
  world.allreduce(times, Op::max);
  return times;
}

/// Their median.
double measure(Communicator& world, int repeats, const std::function<void()>& work) {
  return median(times_of(world, repeats, work));
}

/// One message from every rank to the next, all at once, `rounds` times one after the other.
void shift(Communicator& ring, std::vector<std::byte>& out, std::vector<std::byte>& in, int rounds) {
  const int next = (ring.rank() + 1) % ring.ranks();
  const int previous = (ring.rank() + ring.ranks() - 1) % ring.ranks();
  for (int round = 0; round < rounds; ++round) {
    Handle receiving = ring.receive_async(Buffer(in.data(), in.size(), Dtype::u8), previous);
    ring.send(ConstBuffer(out.data(), out.size(), Dtype::u8), next);
    receiving.wait();
  }
}

/// Alpha and bandwidth of messages round a ring of ranks. The bandwidth is what more bytes cost more, so that what
/// every message costs once, and what a link lets through at first, does not count.
Link measure_link(Communicator& ring) {
  constexpr int kRepeats = 9;
  const auto time_of = [&](std::size_t bytes, int rounds) {
    std::vector<std::byte> out(bytes);
    std::vector<std::byte> in(bytes);
    return times_of(ring, kRepeats, [&] { shift(ring, out, in, rounds); });
  };
  constexpr int kRounds = 32;
  constexpr std::size_t kSmall = 64;
  constexpr std::size_t kLarge = std::size_t{4} << 20;
  // Of many bytes the least time: what else goes on can only make the link look slower than it is.
  const auto least = [&](std::size_t bytes) { return std::ranges::min(time_of(bytes, 1)); };
  const double alpha = median(time_of(kSmall, kRounds)) / kRounds;
  // The longer one first, so that the connections have found their pace when what takes less time is measured.
  const double thrice = least(3 * kLarge);
  const double once = least(kLarge);
  const double per_byte = std::max(1e-13, (thrice - once) / (2 * static_cast<double>(kLarge)));
  return {.alpha = Seconds(alpha), .bandwidth = 1 / per_byte};
}

/// What the link lets through at once after a rest: how many bytes more come in a time than its bandwidth explains. 0
/// unless that is clearly more than what is in flight anyway, or than a bandwidth that is a little off would make it.
double measure_burst(Communicator& ring, const Link& link) {
  constexpr int kRepeats = 9;
  constexpr auto kRest = std::chrono::milliseconds(20);
  double burst = 0;
  for (std::size_t bytes = std::size_t{64} << 10; bytes <= std::size_t{1} << 20; bytes *= 2) {
    std::vector<std::byte> out(bytes);
    std::vector<std::byte> in(bytes);
    std::vector<double> times;
    for (int i = 0; i < kRepeats; ++i) {
      std::this_thread::sleep_for(kRest);
      ring.barrier();
      times.push_back(seconds_of([&] { shift(ring, out, in, 1); }));
    }
    ring.allreduce(times, Op::max);
    // The least time, as for the bandwidth.
    const double time = std::ranges::min(times) - link.alpha.count();
    burst = std::max(burst, static_cast<double>(bytes) - time * link.bandwidth);
  }
  constexpr double kLeast = 32 << 10;
  return burst < std::max(kLeast, 2 * link.alpha.count() * link.bandwidth) ? 0 : burst;
}

/// What a message takes of a rank's time at one end: many small ones at once, so that nothing waits.
Seconds measure_message(Communicator& ring) {
  constexpr int kMessages = 256;
  const int next = (ring.rank() + 1) % ring.ranks();
  const int previous = (ring.rank() + ring.ranks() - 1) % ring.ranks();
  std::vector<int> out(kMessages);
  std::vector<int> in(kMessages);
  const double time = measure(ring, 9, [&] {
    std::vector<Handle> handles;
    for (int i = 0; i < kMessages; ++i) {
      handles.push_back(ring.receive_async(std::span(&in[i], 1), previous));
      handles.push_back(ring.send_async(std::span(&out[i], 1), next));
    }
    for (Handle& handle : handles) handle.wait();
  });
  return Seconds(time / (2 * kMessages));
}

double measure_reduce_rate(Communicator& world) {
  constexpr std::size_t kElements = kSegmentBytes / sizeof(float);
  constexpr int kTimes = 64;
  std::vector<float> own(kElements);
  std::vector<float> other(kElements);
  auto* const to = reinterpret_cast<std::byte*>(own.data());
  const std::byte* const sources[] = {to, reinterpret_cast<const std::byte*>(other.data())};
  const double time = measure(world, 9, [&] {
    for (int i = 0; i < kTimes; ++i) kernels::fold(Op::sum, Dtype::f32, {&to, 1}, sources, kElements);
  });
  return static_cast<double>(kElements * sizeof(float)) * kTimes / time;
}

/// By rank: the first rank that shares memory with it.
std::vector<int> hosts_of(Communicator& world) {
  int first = 0;
  while (!world.shares_memory(first)) ++first;
  std::vector<int> hosts(world.ranks());
  world.allgather(std::span(&first, 1), hosts);
  return hosts;
}

Tuning measure_tuning(Communicator& world, const std::vector<int>& hosts) {
  Tuning tuning = Tuning::load();
  const int rank = world.rank();
  Communicator inside = world.split(hosts[rank], rank);
  const bool leads = hosts[rank] == rank;
  Communicator leaders = world.split(leads ? 1 : 0, rank);
  const auto agree = [&](Link link, bool mine) {
    std::vector<double> values(3);
    if (mine) values = {link.alpha.count(), link.bandwidth, link.burst};
    world.allreduce(values, Op::max);
    return Link{.alpha = Seconds(values[0]), .bandwidth = values[1], .burst = values[2]};
  };
  if (std::any_of(hosts.begin(), hosts.end(), [](int host) { return host != 0; })) {
    Link link;
    std::vector<double> message = {0};
    if (leads) {
      link = measure_link(leaders);
      link.burst = measure_burst(leaders, link);
      message[0] = measure_message(leaders).count();
    }
    world.allreduce(message, Op::max);
    tuning.between = agree(link, leads);
    tuning.message = Seconds(message[0]);
  }
  int most_inside = inside.ranks();
  world.allreduce(std::span(&most_inside, 1), Op::max);
  if (most_inside > 1) {
    Link link;
    if (inside.ranks() > 1) link = measure_link(inside);
    world.barrier();
    tuning.inside = agree(link, inside.ranks() > 1);
  }
  std::vector<double> rate = {measure_reduce_rate(world)};
  world.allreduce(rate, Op::min);
  tuning.reduce_rate = rate[0];
  return tuning;
}

struct Comparison {
  const Algorithm* algorithm;
  std::uint64_t bytes;
  double measured;
  double predicted;
  bool chosen;  ///< selection takes it
  double error() const { return predicted / measured - 1; }
};

/// What takes little time is repeated more often, so that something else that goes on for a moment is not the median.
int repeats_for(double seconds) {
  constexpr double kInAll = 0.5;
  return static_cast<int>(std::clamp(kInAll / seconds, 5.0, 15.0));
}

std::vector<Comparison> compare(Communicator& world, Selector& selector, const std::vector<std::uint64_t>& sizes) {
  std::vector<Comparison> comparisons;
  const Topology topology = selector.topology();
  const auto network = make_network(topology, world.ranks());
  for (const std::uint64_t bytes : sizes) {
    std::vector<float> data(bytes / sizeof(float));
    const Algorithm& chosen = *selector.pick(Collective::allreduce, bytes, "").algorithm;
    for (const Algorithm& algorithm : algorithms(Collective::allreduce)) {
      if (algorithm.served || !algorithm.accepts(world.ranks())) continue;
      const Setting setting = suited(algorithm, {.ranks = world.ranks()}, *network);
      const Simulated predicted =
          simulate(algorithm, setting, *network,
                   {.bytes = bytes, .reduce_rate = selector.tuning().reduce_rate, .segment_bytes = kSegmentBytes});
      const double expected = selector.expected({&algorithm, setting, predicted}).count();
      comparisons.push_back(
          {.algorithm = &algorithm,
           .bytes = bytes,
           .measured = measure(world, repeats_for(expected),
                               [&] { world.allreduce(data, Op::max, {.algorithm = algorithm.name}); }),
           .predicted = expected,
           .chosen = algorithm.name == chosen.name});
    }
  }
  return comparisons;
}

void print(const Tuning& tuning, const std::vector<Comparison>& comparisons) {
  const auto line = [](const char* name, const Link& link) {
    fmt::print("{:<14} alpha {:>10}, bandwidth {}/s{}\n", name, format_time(link.alpha), format_bytes(link.bandwidth),
               link.burst > 0 ? fmt::format(", {} at once after a rest", format_bytes(link.burst)) : "");
  };
  line("between hosts", tuning.between);
  line("inside a host", tuning.inside);
  fmt::print("{:<14} {}/s\n", "adding", format_bytes(tuning.reduce_rate));
  fmt::print("{:<14} {} of a rank's time at each end\n", "a message", format_time(tuning.message));
  std::uint64_t bytes = 0;
  for (const Comparison& one : comparisons) {
    if (one.bytes != bytes) {
      bytes = one.bytes;
      fmt::print("\nallreduce of {:<12} {:>12} {:>12} {:>8}\n", format_bytes(static_cast<double>(bytes)), "measured",
                 "predicted", "error");
    }
    fmt::print("  {:<24} {:>12} {:>12} {:>+7.1f}%\n", one.algorithm->name, format_time(Seconds(one.measured)),
               format_time(Seconds(one.predicted)), 100 * one.error());
  }
}

/// For each size: what selection takes by these figures, what was the fastest, and how much slower the former is.
void print_winners(const std::vector<Comparison>& comparisons) {
  for (std::size_t begin = 0; begin < comparisons.size();) {
    std::size_t end = begin;
    while (end < comparisons.size() && comparisons[end].bytes == comparisons[begin].bytes) ++end;
    const auto first = comparisons.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = comparisons.begin() + static_cast<std::ptrdiff_t>(end);
    const auto fastest =
        std::min_element(first, last, [](const auto& a, const auto& b) { return a.measured < b.measured; });
    const auto chosen = std::find_if(first, last, [](const auto& one) { return one.chosen; });
    fmt::print("{}{}: selection takes {}, {:.1f} % slower than the fastest, {}\n", begin == 0 ? "\n" : "",
               format_bytes(static_cast<double>(first->bytes)), chosen->algorithm->name,
               100 * (chosen->measured / fastest->measured - 1), fastest->algorithm->name);
    begin = end;
  }
}

void print_json(const Tuning& tuning, const std::vector<Comparison>& comparisons) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Comparison& one : comparisons) {
    rows.push_back({{"algorithm", one.algorithm->name},
                    {"bytes", one.bytes},
                    {"measured_us", one.measured * 1e6},
                    {"predicted_us", one.predicted * 1e6},
                    {"chosen", one.chosen},
                    {"error", one.error()}});
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(tuning.to_json());
  json["allreduce"] = rows;
  cli::print_json(json);
}

bool share_one_host(const std::vector<int>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return host == hosts[0]; });
}

/// Whether selection looks at the file: it reads no other than `used`, and for ranks that share a host none.
std::string explain_use(const std::filesystem::path& path, const std::filesystem::path& used,
                        const std::vector<int>& hosts) {
  std::error_code ignored;
  const std::string when = std::filesystem::equivalent(path, used, ignored)
                               ? "From now on selection uses it"
                               : "Selection uses it where TRIREME_TUNING names it";
  return share_one_host(hosts) ? when +
                                     ", for ranks on several hosts; for ranks that share one, as these do, it has "
                                     "fixed rules."
                               : when + ".";
}

int tune(const Options& options) {
  const std::vector<std::uint64_t> sizes = parse_sizes(options.bytes);
  const std::filesystem::path used = Tuning::file();
  const std::filesystem::path path = options.output.empty() ? used : std::filesystem::path(options.output);
  const bool named = path != Tuning::default_file();
  // It may name what is yet to be written.
  if (!std::filesystem::exists(used)) ::unsetenv("TRIREME_TUNING");  // NOLINT(concurrency-mt-unsafe): alone
  Communicator world = init();
  if (world.ranks() < 2) throw UsageError("tune: one rank has no network; start two or more");
  const std::vector<int> hosts = hosts_of(world);
  const Tuning tuning = measure_tuning(world, hosts);
  Selector selector(hosts, tuning, "");
  const std::vector<Comparison> comparisons =
      options.no_check ? std::vector<Comparison>() : compare(world, selector, sizes);
  if (world.rank() != 0) return 0;
  // For other hosts, what holds on one would be wrong.
  const bool writes = named || !share_one_host(hosts);
  if (writes) {
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
    OutputFile(path.string()).save(tuning.to_json());
  }
  if (options.json) {
    print_json(tuning, comparisons);
    return 0;
  }
  print(tuning, comparisons);
  print_winners(comparisons);
  if (writes) {
    fmt::print("\nWritten to {}. {}\n", path.string(), explain_use(path, used, hosts));
  } else {
    fmt::print(
        "\nNot written: for ranks that share a host, as these do, selection has fixed rules. Run it on several hosts "
        "(trireme run --hosts), or name a file with --output.\n");
  }
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Action& run) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tune", "Measure the network between ranks, for choosing algorithms");
  command->add_option("--output,-o", options->output,
                      "File to write; default: TRIREME_TUNING, or trireme/tuning.json in the configuration folder");
  command
      ->add_option("--bytes", options->bytes,
                   "Sizes at which predictions are compared with measurements: a list, or ranges A..B by fours")
      ->capture_default_str();
  command->add_flag("--no-check", options->no_check, "Do not compare predictions with measurements");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "It is a program of ranks: start it as one, on the hosts whose network is to be measured.\n"
      "  trireme run --hosts a:1,b:1 trireme tune\n"
      "or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set on each. For ranks that share one host selection has\n"
      "fixed rules and reads no file; measured there, it is shown, and written only where --output says so.");
  command->callback([&run, options] { run = [options] { return tune(*options); }; });
}

}  // namespace trireme::cli
