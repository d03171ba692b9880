#include "cli/peers.h"

#include "trireme/error.h"
#include "trireme/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <sstream>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct Library {
  std::string name;
  std::string packages;
  std::string worker;                  ///< the program, seen from the folder with workers
  std::vector<std::string> launchers;  ///< names that only this library's mpirun has; none: it needs no launcher
};

const std::vector<Library>& libraries() {
  static const std::vector<Library> kLibraries{
      {"openmpi", "openmpi-bin libopenmpi-dev", "openmpi_collective", {"mpirun.openmpi", "orterun"}},
      {"mpich", "mpich libmpich-dev", "mpich_collective", {"mpirun.mpich", "mpiexec.hydra"}},
      {"gloo", "libgloo-dev", "gloo_collective", {}},
      {"probe", "", "../probe", {}},
  };
  return kLibraries;
}

const Library& find_library(const std::string& name) {
  for (const Library& library : libraries()) {
    if (library.name == name) return library;
  }
  const std::vector<std::string> names = Peer::known();
  const std::string guess = nearest(name, names);
  if (!guess.empty()) throw UsageError(fmt::format("no peer is called '{}'; did you mean '{}'?", name, guess));
  throw UsageError(fmt::format("no peer is called '{}'; there are {}", name, fmt::join(names, ", ")));
}

[[noreturn]] void refuse_missing(const Library& library, const std::string& what) {
  if (library.packages.empty()) {
    throw UsageError(fmt::format("{} can't be measured: there is no {}. Build the target '{}'; 'make bench' does",
                                 library.name, what, library.name));
  }
  throw UsageError(fmt::format(
      "{} can't be measured: there is no {}. Install {} ('tools/setup bench') and build the target 'peers'; "
      "'make bench' does both",
      library.name, what, library.packages));
}

std::string find_launcher(const Library& library) {
  const char* const path = std::getenv("PATH");
  for (const std::string& launcher : library.launchers) {
    std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
      std::string candidate = (fs::path(folder) / launcher).string();
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    }
  }
  refuse_missing(library, library.launchers.front());
}

Command with_openmpi(std::string launcher, int ranks, const std::string& transport, std::string worker) {
  std::vector<std::string> words{std::move(launcher), "-np", std::to_string(ranks), "--oversubscribe"};
  if (transport == "tcp") {
    for (const char* word : {"--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"}) {
      words.emplace_back(word);
    }
  }
  words.push_back(std::move(worker));
  return {.words = std::move(words), .variables = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}};
}

// MPICH spins and never yields, so that two of its ranks on one core take a time slice each; unlike Open MPI it does
// not pin by itself. The worker refuses UCX_TLS where MPICH is built on something else, which would use shared memory
// in spite of it.
Command with_mpich(std::string launcher, int ranks, const std::string& transport, std::string worker) {
  std::vector<std::string> variables;
  if (transport == "tcp") variables = {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"};
  std::vector<std::string> words{std::move(launcher), "-np", std::to_string(ranks)};
  if (static_cast<unsigned>(ranks) <= std::thread::hardware_concurrency()) {
    words.insert(words.end(), {"-bind-to", "core"});
  }
  words.push_back(std::move(worker));
  return {.words = std::move(words), .variables = std::move(variables)};
}

Command gloo_rank(int rank, int ranks, const std::string& store, const std::string& worker) {
  return {.words = {worker, store, "lo", "best"},
          .variables = {fmt::format("RANK={}", rank), fmt::format("WORLD_SIZE={}", ranks)}};
}

}  // namespace

/// A folder where ranks meet, which goes away with it.
class Peer::Store {
 public:
  Store() : path_((fs::temp_directory_path() / "trireme-peer-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) throw SystemError(fmt::format("no temporary folder {}", path_));
  }
  ~Store() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::string> Peer::known() {
  std::vector<std::string> names;
  for (const Library& library : libraries()) names.push_back(library.name);
  return names;
}

fs::path Peer::workers() { return fs::read_symlink("/proc/self/exe").parent_path() / "bench" / "peers"; }

Peer::Peer(const std::string& name, int ranks, const std::string& transport, const fs::path& folder_with_workers,
           const Interrupts* interrupts)
    : name_(name) {
  worker_ = std::make_unique<Worker>(name, plan(ranks, transport, folder_with_workers),
                                     Worker::Options{.interrupts = interrupts});
  worker_->wait_until_ready(ranks);
}

Peer::~Peer() = default;

std::vector<Command> Peer::plan(int ranks, const std::string& transport, const fs::path& folder) {
  const Library& library = find_library(name_);
  if (ranks < 1) throw UsageError(fmt::format("a peer has 1 rank or more, not {}", ranks));
  if (transport != "shm" && transport != "tcp") {
    throw UsageError(fmt::format("a peer's transport is shm or tcp, not '{}'", transport));
  }
  if (name_ == "gloo" && transport == "shm") throw UsageError("gloo has no shared memory: use the transport tcp");
  if (name_ == "probe" && transport == "tcp")
    throw UsageError("probe has nothing but shared memory: use the transport shm");
  const std::string worker = (folder / library.worker).lexically_normal().string();
  if (::access(worker.c_str(), X_OK) != 0) refuse_missing(library, worker);
  if (name_ == "openmpi") return {with_openmpi(find_launcher(library), ranks, transport, worker)};
  if (name_ == "mpich") return {with_mpich(find_launcher(library), ranks, transport, worker)};
  if (name_ == "probe") return {{.words = {worker, std::to_string(ranks), "--serve"}}};
  store_ = std::make_unique<Store>();
  std::vector<Command> commands;
  commands.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) commands.push_back(gloo_rank(rank, ranks, store_->path(), worker));
  return commands;
}

Timing Peer::run(const std::string& collective, std::uint64_t bytes, int repeats, std::chrono::milliseconds limit) {
  return worker_->run(collective, bytes, repeats, "", limit);
}

}  // namespace trireme::cli
