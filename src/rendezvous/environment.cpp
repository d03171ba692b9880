#include "rendezvous/environment.h"

#include "rendezvous/notice.h"
#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::rendezvous {
namespace {

constexpr int kMostRanks = 1'000'000;

constexpr const char* kHowToStart =
    "start it with 'trireme run -n 4 ./program', torchrun, mpirun or srun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
    "MASTER_PORT for each process";

std::string require(const Lookup& lookup, const char* name, std::string_view beside) {
  std::optional<std::string> value = lookup(name);
  if (value) return std::move(*value);
  throw UsageError(fmt::format("{} is set, but {} is not: {}", beside, name, kHowToStart));
}

// A whole number from `least` to `most`, or UsageError that says what else it may be.
int number(const char* name, const std::string& text, int least, int most, std::string_view advice) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc{} && rest == end && value >= least && value <= most) return value;
  throw UsageError(fmt::format("{} is '{}': {}", name, text, advice));
}

// The variables by which somebody says which rank of how many this is.
struct Names {
  const char* rank;
  const char* ranks;
};
constexpr Names kUsual{.rank = "RANK", .ranks = "WORLD_SIZE"};

Place read_ranks(const Lookup& lookup, const Names& names, std::string_view beside) {
  Place place;
  const std::string ranks = require(lookup, names.ranks, beside);
  const std::string rank = require(lookup, names.rank, beside);
  place.ranks = number(names.ranks, ranks, 1, kMostRanks, "it has to be the number of ranks, 1 or more");
  place.rank = number(names.rank, rank, 0, place.ranks - 1,
                      place.ranks == 1
                          ? fmt::format("with {} 1 it has to be 0", names.ranks)
                          : fmt::format("with {} {} it has to be a number from 0 to {}, another one for each process",
                                        names.ranks, place.ranks, place.ranks - 1));
  return place;
}

// The first of the names that is set, for messages.
const char* first_set(const Lookup& lookup, const std::vector<const char*>& names) {
  for (const char* name : names) {
    if (lookup(name)) return name;
  }
  return nullptr;
}

std::string value_or(const Lookup& lookup, const char* name, const char* otherwise) {
  return lookup(name).value_or(otherwise);
}

// Launchers that know nothing of MASTER_ADDR.
struct Starter {
  const char* name;
  Names names;
  const char* here;  // how many of the ranks are on this host
  std::string job;   // another for each of its jobs on a host
  const char* advice;
};

bool is_slurm_step(const Lookup& lookup) {
  // A batch script has SLURM_PROCID too, but no step.
  return lookup("SLURM_PROCID") &&
         first_set(lookup, {"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST"}) != nullptr;
}

std::string job_of_open_mpi(const Lookup& lookup) {
  const char* const job = first_set(lookup, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  return job != nullptr ? *lookup(job) : name_of_starter("OMPI_COMM_WORLD_RANK");
}

// The innermost: mpirun may itself start what it needs by srun.
std::optional<Starter> find_starter(const Lookup& lookup) {
  if (lookup("OMPI_COMM_WORLD_RANK")) {
    return Starter{.name = "mpirun of Open MPI",
                   .names = {.rank = "OMPI_COMM_WORLD_RANK", .ranks = "OMPI_COMM_WORLD_SIZE"},
                   .here = "OMPI_COMM_WORLD_LOCAL_SIZE",
                   .job = "openmpi-" + job_of_open_mpi(lookup),
                   .advice = "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ..."};
  }
  const bool slurm = is_slurm_step(lookup);
  if (lookup("PMI_RANK") && (lookup("MPI_LOCALNRANKS") || !slurm)) {
    return Starter{.name = "mpirun of MPICH",
                   .names = {.rank = "PMI_RANK", .ranks = "PMI_SIZE"},
                   .here = "MPI_LOCALNRANKS",
                   .job = "mpich-" + name_of_starter("PMI_RANK"),
                   .advice = "mpirun -genv MASTER_ADDR HOST -genv MASTER_PORT 29500 ..."};
  }
  if (!slurm) return std::nullopt;
  const bool step_size = lookup("SLURM_STEP_NUM_TASKS").has_value();
  return Starter{.name = "srun of Slurm",
                 .names = {.rank = "SLURM_PROCID", .ranks = step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"},
                 .here = nullptr,
                 .job = fmt::format("slurm-{}-{}", value_or(lookup, "SLURM_JOB_ID", "0"),
                                    value_or(lookup, "SLURM_STEP_ID", value_or(lookup, "SLURM_STEPID", "0").c_str())),
                 .advice = "MASTER_ADDR=HOST MASTER_PORT=29500 srun ..."};
}

// Whoever set RANK may have been started by somebody who counts in another way. One rank alone is a shell or the like.
void check_agreement(const Lookup& lookup, const Place& place) {
  const auto starter = find_starter(lookup);
  if (!starter) return;
  const Place other = read_ranks(lookup, starter->names, starter->names.rank);
  if (other.ranks == 1 || (other.rank == place.rank && other.ranks == place.ranks)) return;
  throw UsageError(fmt::format(
      "this process is rank {} of {} by RANK and WORLD_SIZE, but rank {} of {} by {} and {}, which {} has set: "
      "start it with one of the two alone, or unset the variables of the other",
      place.rank, place.ranks, other.rank, other.ranks, starter->names.rank, starter->names.ranks, starter->name));
}

void meet_at(Place& place, std::string host, int port) {
  place.host = std::move(host);
  place.port = static_cast<std::uint16_t>(port);
  place.serve = place.rank == 0;
}

void meet_by_notice(Place& place, const std::string& job) {
  meet_at(place, "127.0.0.1", 0);
  place.notice = notice_path(job);
}

void meet_at_master(const Lookup& lookup, Place& place, std::string_view beside) {
  const std::string host = require(lookup, "MASTER_ADDR", beside);
  if (host.empty()) throw UsageError("MASTER_ADDR is empty: it has to be the host of rank 0, by name or number");
  meet_at(place, host,
          number("MASTER_PORT", require(lookup, "MASTER_PORT", beside), 1, 65535,
                 "it has to be a port from 1 to 65535 that is free on the host of rank 0, the same for all ranks"));
}

// Its agent keeps a store at MASTER_PORT, unless it was told not to.
void meet_beside_torchrun(const Lookup& lookup, Place& place) {
  meet_at_master(lookup, place, "TORCHELASTIC_RUN_ID");
  place.started_by = "torchrun";
  if (value_or(lookup, "TORCHELASTIC_USE_AGENT_STORE", "True") != "True") return;
  if (lookup("LOCAL_WORLD_SIZE") == lookup("WORLD_SIZE")) {
    meet_by_notice(place, fmt::format("torchrun-{}-{}-{}", place.port, *lookup("TORCHELASTIC_RUN_ID"),
                                      value_or(lookup, "TORCHELASTIC_RESTART_COUNT", "0")));
    return;
  }
  if (place.port == 65535)
    throw UsageError("MASTER_PORT is 65535, and ranks need the next port: give torchrun another");
  ++place.port;
}

// "node[03-07,12],other" begins with node03.
std::string first_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    if (list.front() != '[') {
      host += list.front();
      list.remove_prefix(1);
      continue;
    }
    list.remove_prefix(1);
    host += list.substr(0, list.find_first_of("-,]"));
    list.remove_prefix(std::min(list.size(), list.find(']') + 1));
  }
  return host;
}

// A port that all ranks of a step come to by themselves, below those that systems give away.
int port_of_step(const Lookup& lookup) {
  constexpr std::size_t kFirst = 15'000;
  constexpr std::size_t kPorts = 15'000;
  const auto value = [&](const char* name) { return std::strtoull(value_or(lookup, name, "0").c_str(), nullptr, 10); };
  return static_cast<int>(kFirst + (value("SLURM_JOB_ID") * 61 + value("SLURM_STEP_ID")) % kPorts);
}

void meet_by_slurm(const Lookup& lookup, Place& place, const std::string& job) {
  const char* const nodes = first_set(lookup, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"});
  if (nodes != nullptr && *lookup(nodes) == "1") {
    meet_by_notice(place, job);
    return;
  }
  const char* const list = first_set(lookup, {"SLURM_STEP_NODELIST", "SLURM_NODELIST"});
  const std::string host = list == nullptr ? "" : first_host(*lookup(list));
  if (host.empty()) {
    throw UsageError("SLURM_STEP_NODELIST names no host: set MASTER_ADDR and MASTER_PORT, the same for all ranks");
  }
  meet_at(place, host, port_of_step(lookup));
}

Place place_by(const Lookup& lookup, const Starter& starter) {
  Place place = read_ranks(lookup, starter.names, starter.names.rank);
  place.started_by = starter.name;
  if (const char* const master = first_set(lookup, {"MASTER_ADDR", "MASTER_PORT"})) {
    meet_at_master(lookup, place, master);
  } else if (starter.here == nullptr) {
    meet_by_slurm(lookup, place, starter.job);
  } else if (const auto here = lookup(starter.here); here && *here != *lookup(starter.names.ranks)) {
    throw UsageError(fmt::format(
        "{} started {} ranks, {} of them on this host ({}, {}), so they need a place to meet: name the host of "
        "rank 0 and a free port of it, as in '{}', or use 'trireme run --hosts'",
        starter.name, place.ranks, *here, starter.names.ranks, starter.here, starter.advice));
  } else {
    meet_by_notice(place, starter.job);
  }
  return place;
}

Place place_by_run(const Lookup& lookup, const std::string& meeting_point) {
  Place place = read_ranks(lookup, kUsual, "TRIREME_RENDEZVOUS");
  const auto address = parse_host_and_port(meeting_point);
  if (!address) {
    throw UsageError(
        fmt::format("TRIREME_RENDEZVOUS is '{}': it has to be HOST:PORT or [IPv6]:PORT, with a port from 1 to 65535; "
                    "'trireme run' "
                    "sets it, and nothing else should",
                    meeting_point));
  }
  place.host = address->host;
  place.port = address->port;
  place.started_by = "trireme run";
  check_agreement(lookup, place);
  return place;
}

}  // namespace

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here changes the environment
  if (value == nullptr) return std::nullopt;
  return value;
}

bool started_as_rank(const Lookup& lookup) {
  for (const char* name : {"RANK", "WORLD_SIZE", "TRIREME_RENDEZVOUS"}) {
    if (!value_or(lookup, name, "").empty()) return true;
  }
  return find_starter(lookup).has_value();
}

Place place_from_environment(const Lookup& lookup) {
  if (const auto meeting_point = lookup("TRIREME_RENDEZVOUS")) return place_by_run(lookup, *meeting_point);
  const char* const usual = first_set(lookup, {"RANK", "WORLD_SIZE"});
  if (usual == nullptr) {
    if (const auto starter = find_starter(lookup)) return place_by(lookup, *starter);
  }
  const char* const any = usual != nullptr ? usual : first_set(lookup, {"MASTER_ADDR", "MASTER_PORT"});
  if (any == nullptr) throw UsageError(fmt::format("this process was not started as a rank: {}", kHowToStart));
  Place place = read_ranks(lookup, kUsual, any);
  if (lookup("TORCHELASTIC_RUN_ID")) {
    meet_beside_torchrun(lookup, place);
    return place;
  }
  check_agreement(lookup, place);
  meet_at_master(lookup, place, any);
  place.started_by = "RANK and MASTER_ADDR";
  return place;
}

}  // namespace trireme::rendezvous
