#include "cli/bench_world.h"

#include "cli/cores.h"
#include "rendezvous/guard.h"
#include "rendezvous/server.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

namespace trireme::cli {
namespace {

std::vector<Command> rank_commands(int ranks, const std::string& transport, std::uint16_t port, const Guard& guard) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<Command> commands;
  commands.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    commands.push_back(
        {.words = {self, "bench-rank"},
         .variables = {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks),
                       fmt::format("LOCAL_RANK={}", rank), fmt::format("LOCAL_WORLD_SIZE={}", ranks),
                       "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port),
                       fmt::format("TRIREME_RENDEZVOUS=127.0.0.1:{}", port), "TRIREME_TRANSPORT=" + transport}});
    for (std::string& variable : rendezvous::variables_for_ranks(guard)) {
      commands.back().variables.push_back(std::move(variable));
    }
  }
  return commands;
}

}  // namespace

BenchWorld::BenchWorld(int ranks, const std::string& transport, const Interrupts* interrupts) {
  const Guard guard = rendezvous::guard_for_ranks();
  server_ =
      std::make_unique<rendezvous::Server>("127.0.0.1", 0, ranks, rendezvous::Meetings::many, "trireme bench", guard);
  const Cores cores;
  const bool pin = cores.count() >= ranks;
  const auto bind = [&](int rank) {
    if (pin) cores.bind_to_share(rank, ranks);
  };
  worker_ = std::make_unique<Worker>("trireme", rank_commands(ranks, transport, server_->port(), guard),
                                     Worker::Options{.interrupts = interrupts, .before_start = bind});
  if (pin) cores.unbind();
  worker_->wait_until_ready(ranks);
}

BenchWorld::~BenchWorld() = default;

Timing BenchWorld::run(const std::string& collective, std::uint64_t bytes, int repeats, const std::string& buffers,
                       const std::string& algorithm) {
  return worker_->run(collective, bytes, repeats,
                      fmt::format("{} {}", buffers, algorithm.empty() ? "chosen" : algorithm));
}

}  // namespace trireme::cli
