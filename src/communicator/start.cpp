#include "communicator/start.h"

#include "base/host_name.h"
#include "communicator/announcement.h"
#include "communicator/state.h"
#include "rendezvous/client.h"
#include "rendezvous/environment.h"
#include "rendezvous/guard.h"
#include "rendezvous/interfaces.h"
#include "rendezvous/notice.h"
#include "rendezvous/server.h"
#include "transport/inproc.h"
#include "transport/shm.h"
#include "transport/socket.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <random>
#include <sched.h>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <tuple>
#include <unistd.h>

namespace trireme {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// TCP connections of each pair of ranks.
int connections() {
  const std::string asked = environment("TRIREME_CONNECTIONS");
  if (asked.empty()) return 1;
  int count = 0;
  const auto [end, error] = std::from_chars(asked.data(), asked.data() + asked.size(), count);
  if (error != std::errc() || end != asked.data() + asked.size() || count < 1 ||
      count > transport::Tcp::kMostConnections) {
    throw UsageError(fmt::format("TRIREME_CONNECTIONS is '{}'; it must be a number from 1 to {}", asked,
                                 transport::Tcp::kMostConnections));
  }
  return count;
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

/// The kernel that this rank runs on: ranks with the same one share its cores, even if they see no memory of each
/// other.
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
  throw UsageError(fmt::format(
      "no transport is called '{}' (TRIREME_TRANSPORT, InitOptions::transport); there are auto, shm and tcp", name));
}

/// As the environment says, or else the program.
Ways asked_ways(const InitOptions& options) {
  const std::string asked = environment("TRIREME_TRANSPORT");
  return parse_ways(asked.empty() ? options.transport : asked);
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

Neighbourhood get_to_know(int rank, const std::vector<Surroundings>& all) {
  Neighbourhood result;
  std::set<int> cores;
  std::size_t neighbours = 0;
  for (const Surroundings& one : all) {
    result.hosts.push_back(one.host);
    if (one.machine != all[rank].machine) continue;
    ++neighbours;
    cores.insert(one.cores.begin(), one.cores.end());
  }
  result.crowded = neighbours > cores.size();
  result.one_machine = neighbours == all.size();
  return result;
}

/// What has the same loopback: containers of a machine may each have a network of their own.
std::string network() {
  struct stat info {};
  return fmt::format("{} {}", machine(), ::stat("/proc/self/ns/net", &info) == 0 ? info.st_ino : 0);
}

/// Where a rank offers to be reached. One beside the rendezvous may have come to it by loopback, as where a host's name
/// means 127.0.1.1 on that host itself, or where the launcher is there too. Ranks of other hosts reach it where they
/// reached the rendezvous. An interface that was asked for is taken as it is.
std::string address_of(int rank, const std::vector<Announcement>& met) {
  const Announcement& own = met[rank];
  if (!rendezvous::is_loopback(own.address) || own.chosen) return own.address;
  for (const Announcement& one : met) {
    if (!rendezvous::is_loopback(one.server)) return one.server;
  }
  return own.address;
}

/// All ranks find the same, so that all say the same.
void check_addresses(const std::vector<Announcement>& met) {
  for (int rank = 0; rank < static_cast<int>(met.size()); ++rank) {
    if (!rendezvous::is_loopback(address_of(rank, met))) continue;
    for (int peer = 0; peer < static_cast<int>(met.size()); ++peer) {
      if (met[peer].network == met[rank].network) continue;
      throw UsageError(fmt::format(
          "{} offers its peers the address {}, which is its host's own loopback, so that {} on another host can't "
          "reach it: "
          "{}",
          met[rank].name, address_of(rank, met), met[peer].name,
          met[rank].chosen ? "give TRIREME_INTERFACE (--interface) a network that the hosts share"
                           : "name the meeting point by an address that all hosts reach "
                             "(MASTER_ADDR, or --address of 'trireme run'), or "
                             "say which network to use with TRIREME_INTERFACE"));
    }
  }
}

void allow_ports() {
  const std::string range = environment("TRIREME_PORTS");
  const rendezvous::Ports ports = range.empty() ? rendezvous::Ports{} : rendezvous::parse_ports(range);
  transport::allow_ports({.first = ports.first, .last = ports.last});
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
  Guard guard = rendezvous::guard_at(place);
  const Log log(Log::level_from_environment(), place.rank);
  guard.notice = [log](const std::string& text) { log.say(LogLevel::info, text); };
  if (!guard.secret && place.notice.empty() && place.ranks > 1) {
    log.say(
        LogLevel::info,
        "this job has no secret, so strangers that reach its ports are not kept out: start it with 'trireme run', or "
        "set TRIREME_SECRET or TRIREME_SECRET_FILE to the same for all ranks");
  }
  return guard;
}

/// Tells all ranks something, and hears the same kind of thing of each.
template <typename Said>
std::vector<Said> exchange(const Joining& joining, const Said& mine) {
  std::vector<Said> all;
  for (const std::string& text : joining.exchange(mine.to_text())) {
    all.push_back(Said::parse(text, static_cast<int>(all.size())));
  }
  return all;
}

/// Ranks that were told to do different things would wait for each other.
void check_alike(const std::vector<Announcement>& met) {
  const auto told = [](const Announcement& one) { return std::tie(one.ways, one.forced, one.connections); };
  for (const Announcement& one : met) {
    if (told(one) == told(met[0])) continue;
    throw UsageError(
        fmt::format("{} and {} were given different transports, algorithms or numbers of connections "
                    "(TRIREME_TRANSPORT, TRIREME_ALGORITHM, TRIREME_CONNECTIONS); give all ranks the same",
                    met[0].name, one.name));
  }
}

/// The same for all, whatever lies on which host: ranks must choose alike.
Tuning tuning_of(const Announcement& first) {
  try {
    return Tuning::parse(first.tuning, first.tuned);
  } catch (const UsageError& error) {
    throw ProtocolError(fmt::format("{} announced a tuning that makes no sense: {}", first.name, error.what()));
  }
}

}  // namespace

std::vector<Communicator> threads_world(int ranks, const InitOptions& options) {
  const transport::Inproc inproc(ranks);
  std::vector<Communicator> communicators;
  std::vector<std::string> names;
  names.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) names.push_back(fmt::format("rank {}", rank));
  const auto board = std::make_shared<Board>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto world = make_world(options, rank);
    world->tuning = Tuning::guess();
    world->engine =
        std::make_unique<Engine>(EngineParts{.rank = rank,
                                             .ranks = ranks,
                                             .names = names,
                                             .crowded = ranks > static_cast<int>(std::thread::hardware_concurrency()),
                                             .board = board});
    world->engine->use(std::make_unique<transport::Host>(ranks, inproc.memory(rank), *world->engine), nullptr);
    communicators.push_back(first_communicator(world, rank, std::vector<int>(ranks, 0)));
  }
  return communicators;
}

Communicator join(const Joining& joining, const InitOptions& options) {
  const int rank = joining.rank;
  const int ranks = joining.ranks;
  const Ways ways = asked_ways(options);
  const auto world = make_world(options, rank);

  const std::string interface = environment("TRIREME_INTERFACE");
  const Tuning tuning = Tuning::load();
  std::random_device random;
  const auto met =
      exchange(joining, Announcement{.name = fmt::format("rank {} ({}, pid {})", rank, host_name(), ::getpid()),
                                     .job = std::uint64_t{random()} << 32 | random(),
                                     .server = joining.server,
                                     .address = rendezvous::choose_address(interface, joining.address),
                                     .chosen = !interface.empty(),
                                     .network = network(),
                                     .ways = static_cast<int>(ways),
                                     .tuning = tuning.to_json(),
                                     .tuned = tuning.source,
                                     .forced = world->forced,
                                     .connections = connections()});
  check_alike(met);
  world->tuning = tuning_of(met[0]);
  EngineParts parts{
      .rank = rank, .ranks = ranks, .board = joining.board ? joining.board : std::make_shared<Board>(ranks)};
  for (const Announcement& one : met) parts.names.push_back(one.name);

  std::unique_ptr<transport::HostMemory> memory;
  if (ways != Ways::tcp) {
    memory = transport::make_shm(rank, ranks, joining.exchange, joining.board ? -1 : parts.board->descriptor());
    if (!joining.board) {
      if (auto shared = Board::shared(ranks, memory->gift())) parts.board = std::move(shared);
    }
  }
  int host = rank;
  std::set<int> near;
  if (memory) {
    for (const transport::HostPeer& peer : memory->peers()) {
      near.insert(peer.rank);
      host = std::min(host, peer.rank);
    }
  }
  // A rank that is gone shares no memory either: what is exchanged next finds that out.
  const Neighbourhood neighbourhood =
      get_to_know(rank, exchange(joining, Surroundings{.host = host, .machine = machine(), .cores = own_cores()}));
  const bool all_near = static_cast<int>(near.size()) == ranks - 1;
  if (ways == Ways::shm && !all_near) {
    throw UsageError(
        fmt::format("{} shares memory with {} of {} others; ranks on several hosts need the transport auto "
                    "or tcp",
                    parts.names[rank], near.size(), ranks - 1));
  }
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
    check_addresses(met);
    allow_ports();
    tcp = std::make_unique<transport::Tcp>(rank, ranks, inbox, address_of(rank, met), met[0].job, connections(),
                                           joining.guard);
    world->log.say(LogLevel::info, fmt::format("peers reach it at {}, {}{}", tcp->address(),
                                               interface.empty() ? "which is on its way to where ranks met"
                                                                 : "as TRIREME_INTERFACE asks",
                                               joining.guard.encrypt ? "; what they say is encrypted" : ""));
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

Communicator init(const InitOptions& options) {
  InitOptions bounded = options;
  bounded.patience = at_most_years(options.patience);
  if (options.alone && !rendezvous::started_as_rank()) {
    asked_ways(options);  // One rank needs none, but a wrong name is refused.
    return threads_world(1, bounded).front();
  }
  const rendezvous::Place place = rendezvous::place_from_environment();
  Log(Log::level_from_environment(), place.rank)
      .say(LogLevel::info, fmt::format("started by {} as rank {} of {}", place.started_by, place.rank, place.ranks));
  // Whole lines are what the launcher passes on: they shall not wait until there are many, nor be lost with the rank.
  if (place.started_by == "trireme run") std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Guard guard = guard_with_log(place);
  rendezvous::Posted posted;
  const bool posts = place.serve && !place.notice.empty();
  if (posts && !guard.secret) guard.secret = posted.secret = Secret::make();
  const std::unique_ptr<rendezvous::Server> server = rendezvous::serve(place, guard);
  std::optional<rendezvous::Notice> notice;
  if (posts) {
    posted.port = server->port();
    notice.emplace(place.notice, posted);
  }
  rendezvous::Client client(place, bounded.patience, guard);
  const auto deadline = Clock::now() + bounded.patience;
  return join({.rank = place.rank,
               .ranks = place.ranks,
               .address = client.local_address(),
               .server = client.server_address(),
               .exchange =
                   [&](const std::string& mine) {
                     auto all = client.exchange(mine, deadline);
                     notice.reset();  // All have come.
                     return all;
                   },
               .board = Board::inherited(place.ranks),
               .guard = client.guard()},
              bounded);
}

}  // namespace trireme
