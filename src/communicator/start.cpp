#include "communicator/start.h"

#include "communicator/state.h"
#include "rendezvous/client.h"
#include "rendezvous/environment.h"
#include "rendezvous/guard.h"
#include "rendezvous/server.h"
#include "transport/inproc.h"
#include "transport/shm.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <sched.h>
#include <set>
#include <thread>
#include <unistd.h>

namespace trireme {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<int> own_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return cores;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// The kernel that this rank runs on: ranks with the same one share its cores, even if they see no memory of each other.
std::string machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) ? id : host_name();
}

enum class Ways : std::uint8_t { automatic, shm, tcp };

Ways parse_ways(const std::string& name) {
  if (name == "auto") return Ways::automatic;
  if (name == "shm") return Ways::shm;
  if (name == "tcp") return Ways::tcp;
  throw UsageError(fmt::format("no transport is called '{}'; there are auto, shm and tcp", name));
}

std::shared_ptr<World> make_world(const InitOptions& options, int rank) {
  auto world = std::make_shared<World>();
  world->patience = at_most_years(options.patience);
  world->forced = environment("TRIREME_ALGORITHM");
  world->log = Log(Log::level_from_environment(), rank);
  return world;
}

Communicator first_communicator(std::shared_ptr<World> world, int rank, std::vector<int> hosts) {
  std::vector<int> members(hosts.size());
  for (std::size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
  return Communicator(
      std::make_shared<Communicator::State>(std::move(world), 1, rank, std::move(members), std::move(hosts)));
}

/// What ranks tell each other once they know who shares memory with whom.
struct Neighbourhood {
  std::vector<int> hosts;    ///< by rank: the first rank that shares memory with it
  bool crowded = false;      ///< this rank's machine has more ranks than cores
  bool one_machine = false;  ///< it is that of all ranks
};

Neighbourhood get_to_know(int rank, const std::vector<nlohmann::json>& all) {
  Neighbourhood result;
  for (const auto& one : all) result.hosts.push_back(one.at("host").get<int>());
  std::set<int> cores;
  std::size_t neighbours = 0;
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    if (all[peer].at("machine") != all[rank].at("machine")) continue;
    ++neighbours;
    for (const int core : all[peer].at("cores")) cores.insert(core);
  }
  result.crowded = neighbours > cores.size();
  result.one_machine = neighbours == all.size();
  return result;
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// A rank beside the rendezvous may have come to it by loopback, as where a host's name means 127.0.1.1 on that host
// itself. Ranks of other hosts reach it where they reached the rendezvous.
std::string address_for_peers(const Joining& joining, const std::vector<nlohmann::json>& met) {
  if (!is_loopback(joining.address)) return joining.address;
  for (const auto& one : met) {
    if (const std::string server = one.at("server"); !is_loopback(server)) return server;
  }
  return joining.address;
}

void check_neighbours(int rank, const std::vector<int>& hosts, const std::set<int>& near,
                      const std::vector<std::string>& names) {
  for (int peer = 0; peer < static_cast<int>(hosts.size()); ++peer) {
    if (peer == rank || (hosts[peer] == hosts[rank]) == near.contains(peer)) continue;
    throw SystemError(fmt::format("{} and {} should see each other's memory, as both see that of {}, but do not",
                                  names[rank], names[peer], names[hosts[rank]]));
  }
}

Guard guard_with_log(const rendezvous::Place& place) {
  Guard guard = rendezvous::guard_from_environment();
  const Log log(Log::level_from_environment(), place.rank);
  guard.notice = [log](const std::string& text) { log.say(LogLevel::info, text); };
  if (!guard.secret && place.ranks > 1) {
    log.say(
        LogLevel::info,
        "this job has no secret, so strangers that reach its ports are not kept out: start it with 'trireme run', or "
        "set TRIREME_SECRET or TRIREME_SECRET_FILE to the same for all ranks");
  }
  return guard;
}

std::vector<nlohmann::json> exchange_json(const Joining& joining, const nlohmann::json& mine) {
  std::vector<nlohmann::json> all;
  for (const std::string& text : joining.exchange(mine.dump())) {
    all.push_back(nlohmann::json::parse(text, nullptr, false));
    if (all.back().is_discarded()) throw ProtocolError("a rank announced itself with something that makes no sense");
  }
  return all;
}

}  // namespace

std::vector<Communicator> threads_world(int ranks, const InitOptions& options) {
  const transport::Inproc inproc(ranks);
  std::vector<Communicator> communicators;
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) names.push_back(fmt::format("rank {}", rank));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto world = make_world(options, rank);
    world->tuning = Tuning::guess();
    world->engine =
        std::make_unique<Engine>(EngineParts{.rank = rank,
                                             .ranks = ranks,
                                             .names = names,
                                             .crowded = ranks > static_cast<int>(std::thread::hardware_concurrency())});
    world->engine->use(std::make_unique<transport::Host>(ranks, inproc.memory(rank), *world->engine), nullptr);
    communicators.push_back(first_communicator(world, rank, std::vector<int>(ranks, 0)));
  }
  return communicators;
}

Communicator join(const Joining& joining, const InitOptions& options) {
  const int rank = joining.rank;
  const int ranks = joining.ranks;
  const std::string asked = environment("TRIREME_TRANSPORT");
  const Ways ways = parse_ways(asked.empty() ? options.transport : asked);
  const auto world = make_world(options, rank);

  std::random_device random;
  const std::uint64_t number = std::uint64_t{random()} << 32 | random();
  const auto met = exchange_json(joining, {{"name", fmt::format("rank {} ({}, pid {})", rank, host_name(), ::getpid())},
                                           {"job", number},
                                           {"server", joining.server},
                                           {"ways", static_cast<int>(ways)},
                                           {"tuning", Tuning::load().to_json()},
                                           {"tuned", Tuning::load().source},
                                           {"forced", world->forced}});
  EngineParts parts{.rank = rank, .ranks = ranks};
  for (const auto& one : met) parts.names.push_back(one.at("name"));
  for (int peer = 0; peer < ranks; ++peer) {
    if (met[peer].at("ways") != met[0].at("ways") || met[peer].at("forced") != met[0].at("forced")) {
      throw UsageError(
          fmt::format("{} and {} were given different transports or algorithms (TRIREME_TRANSPORT, "
                      "TRIREME_ALGORITHM); give all ranks the same",
                      parts.names[0], parts.names[peer]));
    }
  }
  // The same for all, whatever lies on which host: ranks must choose alike.
  const std::string source = met[0].at("tuned");
  world->tuning = Tuning::parse(met[0].at("tuning"), source);
  world->tuning.source = source;

  std::unique_ptr<transport::HostMemory> memory;
  if (ways != Ways::tcp) memory = transport::make_shm(rank, ranks, joining.exchange);
  int host = rank;
  std::set<int> near;
  if (memory) {
    for (const transport::HostPeer& peer : memory->peers()) {
      near.insert(peer.rank);
      host = std::min(host, peer.rank);
    }
  }
  const bool all_near = static_cast<int>(near.size()) == ranks - 1;
  if (ways == Ways::shm && !all_near) {
    throw UsageError(
        fmt::format("{} shares memory with {} of {} others; ranks on several hosts need the transport auto "
                    "or tcp",
                    parts.names[rank], near.size(), ranks - 1));
  }
  const Neighbourhood neighbourhood =
      get_to_know(rank, exchange_json(joining, {{"host", host}, {"machine", machine()}, {"cores", own_cores()}}));
  parts.crowded = neighbourhood.crowded;
  if (neighbourhood.crowded && neighbourhood.one_machine) world->cores = Cores::shared;
  check_neighbours(rank, neighbourhood.hosts, near, parts.names);
  const bool one_host =
      std::all_of(neighbourhood.hosts.begin(), neighbourhood.hosts.end(), [](int h) { return h == 0; });

  world->engine = std::make_unique<Engine>(std::move(parts));
  std::unique_ptr<transport::Faulty> faulty;
  if (joining.faults) faulty = std::make_unique<transport::Faulty>(ranks, *world->engine, *joining.faults);
  transport::Inbox& inbox = faulty ? faulty->inbox() : static_cast<transport::Inbox&>(*world->engine);
  std::unique_ptr<transport::Tcp> tcp;
  if (ranks > 1 && (ways == Ways::tcp || !one_host)) {
    tcp = std::make_unique<transport::Tcp>(rank, ranks, inbox, address_for_peers(joining, met),
                                           met[0].at("job").get<std::uint64_t>(), 1, joining.guard);
  }
  const std::vector<std::string> addresses = joining.exchange(tcp ? tcp->address() : "");
  if (tcp) tcp->meet(addresses);
  std::unique_ptr<transport::Host> shared;
  if (memory) shared = std::make_unique<transport::Host>(ranks, std::move(memory), *world->engine);
  std::unique_ptr<transport::Network> network = std::move(tcp);
  if (faulty && network) network = transport::Faulty::over(std::move(faulty), std::move(network));
  world->engine->use(std::move(shared), std::move(network));
  std::vector<int> hosts = neighbourhood.hosts;
  if (ways == Ways::tcp) {
    for (int peer = 0; peer < ranks; ++peer) hosts[peer] = peer;
  }
  return first_communicator(world, rank, std::move(hosts));
}

Communicator init(const InitOptions& asked) {
  InitOptions options = asked;
  options.patience = at_most_years(asked.patience);
  const bool started =
      !environment("RANK").empty() || !environment("WORLD_SIZE").empty() || !environment("TRIREME_RENDEZVOUS").empty();
  if (options.alone && !started) return threads_world(1, options).front();
  const rendezvous::Place place = rendezvous::place_from_environment();
  const Guard guard = guard_with_log(place);
  const std::unique_ptr<rendezvous::Server> server = rendezvous::serve(place, guard);
  rendezvous::Client client(place, options.patience, guard);
  const auto deadline = Clock::now() + options.patience;
  return join({.rank = place.rank,
               .ranks = place.ranks,
               .address = client.local_address(),
               .server = client.server_address(),
               .exchange = [&](const std::string& mine) { return client.exchange(mine, deadline); },
               .guard = guard},
              options);
}

}  // namespace trireme
