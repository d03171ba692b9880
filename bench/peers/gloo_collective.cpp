// Gloo's collectives over TCP, as a peer to be measured, see worker.h.
//   RANK=r WORLD_SIZE=P gloo_collective FOLDER NETWORK [ring|bcube|best]
// The ranks find each other by files in FOLDER, which starts empty. NETWORK is the interface to use, or this rank's own
// address. The last argument is allreduce's algorithm; best, which is what is taken if it is not given, measures both
// and reports the faster.
#include "peers/worker.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <memory>

namespace trireme::peers {
namespace {

constexpr int kRoot = 0;

using Function = void (*)(void*, const void*, const void*, std::size_t);
using Algorithm = gloo::AllreduceOptions::Algorithm;

struct Way {
  std::string name;
  Algorithm algorithm;
};

std::shared_ptr<gloo::Context> connect(int rank, int ranks, const std::string& folder, const std::string& network) {
  gloo::transport::tcp::attr attributes;
  const bool is_address = network.find_first_of(".:") != std::string::npos;
  (is_address ? attributes.hostname : attributes.iface) = network;
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(folder);
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  context->connectFullMesh(store, device);
  context->setTimeout(std::chrono::minutes(10));
  return context;
}

class Gloo final : public Library {
 public:
  Gloo(std::shared_ptr<gloo::Context> context, std::vector<Way> ways)
      : context_(std::move(context)), ways_(std::move(ways)) {}

  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }

  std::vector<std::string> ways(Collective collective) const override {
    if (collective == Collective::reduce_scatter) return {};
    if (collective != Collective::allreduce) return {"gloo"};
    std::vector<std::string> names;
    for (const Way& way : ways_) names.push_back(way.name);
    return names;
  }

  void run(Collective collective, std::size_t way, Buffers& buffers) override {
    std::vector<float>& whole = buffers.whole;
    std::vector<float>& share = buffers.share;
    switch (collective) {
      case Collective::allreduce: return allreduce(ways_[way].algorithm, whole);
      case Collective::allgather: return allgather(share, whole);
      case Collective::broadcast: return broadcast(whole.data(), whole.size());
      case Collective::reduce: return reduce(whole.data(), whole.size(), &gloo::sum<float>);
      case Collective::gather: return gather(share, whole);
      case Collective::scatter: return scatter(whole, share);
      case Collective::all_to_all: return all_to_all(whole, buffers.other);
      case Collective::barrier: return barrier();
      case Collective::reduce_scatter: throw UsageError("Gloo has no reduce_scatter");
    }
  }

  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  // Gloo sleeps while it waits: here, until the user's next command.
  void share(Order& order) override {
    broadcast(reinterpret_cast<char*>(&order), sizeof order, std::chrono::hours(24 * 7));
  }

  void greatest(std::span<double> values) override { reduce(values.data(), values.size(), &gloo::max<double>); }

 private:
  void allreduce(Algorithm algorithm, std::vector<float>& whole) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(whole.data(), whole.size());
    options.setAlgorithm(algorithm);
    options.setReduceFunction(static_cast<Function>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

  void allgather(std::vector<float>& share, std::vector<float>& whole) {
    gloo::AllgatherOptions options(context_);
    options.setInput(share.data(), share.size());
    options.setOutput(whole.data(), whole.size());
    gloo::allgather(options);
  }

  template <typename Element>
  void broadcast(Element* elements, std::size_t count, std::chrono::milliseconds limit = std::chrono::minutes(10)) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(elements, count);
    options.setRoot(kRoot);
    options.setTimeout(limit);
    gloo::broadcast(options);
  }

  template <typename Element>
  void reduce(Element* elements, std::size_t count, Function function) {
    gloo::ReduceOptions options(context_);
    options.setOutput(elements, count);
    options.setRoot(kRoot);
    options.setReduceFunction(function);
    gloo::reduce(options);
  }

  void gather(std::vector<float>& share, std::vector<float>& whole) {
    gloo::GatherOptions options(context_);
    options.setInput(share.data(), share.size());
    if (rank() == kRoot) options.setOutput(whole.data(), whole.size());
    options.setRoot(kRoot);
    gloo::gather(options);
  }

  void scatter(std::vector<float>& whole, std::vector<float>& share) {
    gloo::ScatterOptions options(context_);
    std::vector<float*> parts;
    parts.reserve(ranks());
    for (int peer = 0; peer < ranks(); ++peer)
      parts.push_back(whole.data() + static_cast<std::size_t>(peer) * share.size());
    if (rank() == kRoot) options.setInputs(parts, share.size());
    options.setOutput(share.data(), share.size());
    options.setRoot(kRoot);
    gloo::scatter(options);
  }

  void all_to_all(std::vector<float>& from, std::vector<float>& to) {
    gloo::AlltoallOptions options(context_);
    options.setInput(from.data(), from.size());
    options.setOutput(to.data(), to.size());
    gloo::alltoall(options);
  }

  std::shared_ptr<gloo::Context> context_;
  std::vector<Way> ways_;
};

int number_from_environment(const char* name) {
  const char* const text = std::getenv(name);
  char* end = nullptr;
  const long number = text == nullptr ? -1 : std::strtol(text, &end, 10);
  if (number < 0 || number > 100'000 || *end != '\0') throw UsageError(fmt::format("{} must be set to a number", name));
  return static_cast<int>(number);
}

std::vector<Way> ways_of(const std::string& algorithm) {
  const Way ring{"gloo-ring", Algorithm::RING};
  const Way bcube{"gloo-bcube", Algorithm::BCUBE};
  if (algorithm == "ring") return {ring};
  if (algorithm == "bcube") return {bcube};
  if (algorithm == "best") return {ring, bcube};
  throw UsageError(fmt::format("the algorithm is ring, bcube or best, not '{}'", algorithm));
}

void run_worker(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2 || arguments.size() > 3) {
    throw UsageError("usage: RANK=r WORLD_SIZE=P gloo_collective FOLDER NETWORK [ring|bcube|best]");
  }
  const std::vector<Way> ways = ways_of(arguments.size() == 3 ? arguments[2] : "best");
  const int rank = number_from_environment("RANK");
  const int ranks = number_from_environment("WORLD_SIZE");
  if (rank >= ranks) throw UsageError(fmt::format("RANK is {}, and WORLD_SIZE only {}", rank, ranks));
  Gloo gloo(connect(rank, ranks, arguments[0], arguments[1]), ways);
  serve(gloo, "gloo");
  // Who leaves closes its connections, which others that are not done yet would take for a failure.
  gloo.barrier();
}

}  // namespace
}  // namespace trireme::peers

int main(int argc, char** argv) {
  try {
    trireme::peers::run_worker({argv + 1, argv + argc});
  } catch (const trireme::UsageError& error) {
    fmt::print(stderr, "gloo: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "gloo: {}\n", error.what());
    return 1;
  }
  return 0;
}
