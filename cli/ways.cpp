#include "cli/ways.h"

#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace trireme::cli {
namespace {

bool is_this_machine(const std::string& host) { return host == "localhost" || rendezvous::is_loopback(host); }

// ssh asks no questions that nobody would see, and notices when the other side is gone.
const std::vector<std::string> kSsh{"ssh", "-T",
                                    "-o",  "BatchMode=yes",
                                    "-o",  "ConnectTimeout=20",
                                    "-o",  "ServerAliveInterval=5",
                                    "-o",  "ServerAliveCountMax=3"};

// As one word of the shell by which ssh runs commands.
std::string quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) c == '\'' ? quoted += "'\\''" : quoted += c;
  return quoted + "'";
}

}  // namespace

bool needs_agent(const Launch& options, const std::string& host) {
  return !options.agent.empty() || !is_this_machine(host);
}

std::vector<std::string> agent_command(const Launch& options, const std::string& host) {
  std::vector<std::string> command = options.agent.empty() ? kSsh : options.agent;
  const bool shell = std::filesystem::path(command.front()).filename() == "ssh";
  command.insert(command.end(), {host, shell ? quoted(options.agent_program) : options.agent_program, "host-agent"});
  return command;
}

std::future<std::vector<std::string>> addresses_for(const Launch& options, const std::string& host) {
  if (!options.address.empty()) {
    return std::async(std::launch::deferred, [address = options.address] { return std::vector{address}; });
  }
  return std::async(std::launch::async, [host, addresses = rendezvous::choose_addresses(options.interface),
                                         loopback = options.interface.empty()]() mutable {
    if (const auto on_the_way = rendezvous::address_towards(host)) {
      const auto found = std::find(addresses.begin(), addresses.end(), *on_the_way);
      if (found != addresses.end()) std::rotate(addresses.begin(), found, found + 1);
    }
    if (loopback) addresses.emplace_back("127.0.0.1");
    return addresses;
  });
}

std::unique_ptr<rendezvous::Server> serve(const std::string& host, const rendezvous::Ports& ports, int ranks,
                                          const Guard& guard) {
  for (int port = ports.first;; ++port) {
    try {
      return std::make_unique<rendezvous::Server>(host, static_cast<std::uint16_t>(port), ranks,
                                                  rendezvous::Meetings::many, "trireme run", guard);
    } catch (const rendezvous::PortInUse&) {
      if (ports.first == 0) throw;
      if (port == ports.last) {
        throw SystemError(
            fmt::format("all ports from {} to {} are in use here: allow more (--ports), one for each rank of a host "
                        "and one for the launcher",
                        ports.first, ports.last));
      }
    }
  }
}

}  // namespace trireme::cli
