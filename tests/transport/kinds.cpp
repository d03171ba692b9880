#include "transport/cluster.h"
#include "transport/host.h"
#include "transport/inproc.h"
#include "transport/shm.h"
#include "transport/tcp_cluster.h"

#include <barrier>
#include <thread>

namespace trireme::test {

namespace {

Transports inproc(std::span<transport::Inbox* const> inboxes) {
  const int ranks = static_cast<int>(inboxes.size());
  const transport::Inproc shared(ranks);
  Transports transports;
  for (int rank = 0; rank < ranks; ++rank) {
    transports.push_back(std::make_unique<transport::Host>(ranks, shared.memory(rank), *inboxes[rank]));
  }
  return transports;
}

Transports shm(std::span<transport::Inbox* const> inboxes) {
  const int ranks = static_cast<int>(inboxes.size());
  Transports transports(ranks);
  std::vector<std::string> told(ranks);
  std::barrier together(ranks);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const transport::Exchange exchange = [&](const std::string& mine) {
        told[rank] = mine;
        together.arrive_and_wait();
        std::vector<std::string> heard = told;
        together.arrive_and_wait();
        return heard;
      };
      transports[rank] =
          std::make_unique<transport::Host>(ranks, transport::make_shm(rank, ranks, exchange), *inboxes[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return transports;
}

std::span<std::byte> host_memory(Transport& transport, std::size_t bytes) {
  auto& host = dynamic_cast<transport::Host&>(transport);
  return {host.memory().arena().take(std::max<std::size_t>(bytes, 1)), bytes};
}

}  // namespace

const std::vector<Kind>& every_kind() {
  static const std::vector<Kind> kKinds{
      {.name = "tcp", .make = [](auto inboxes) { return over_tcp(inboxes, 1); }, .notices_death = true},
      {.name = "tcp_of_3", .make = [](auto inboxes) { return over_tcp(inboxes, 3); }, .notices_death = true},
      {.name = "tcp_secret",
       .make = [](auto inboxes) { return over_tcp(inboxes, 2, "127.0.0.1", guarded()); },
       .notices_death = true},
      {.name = "tcp_encrypted",
       .make = [](auto inboxes) { return over_tcp(inboxes, 2, "127.0.0.1", guarded(true)); },
       .notices_death = true},
      {.name = "inproc", .make = inproc},
      {.name = "shm", .make = shm, .memory = host_memory},
  };
  return kKinds;
}

}  // namespace trireme::test
