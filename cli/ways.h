// The ways between a launcher and its hosts: what runs an agent on a host, and where the host finds the launcher.
#pragma once

#include "cli/launcher.h"
#include "rendezvous/guard.h"
#include "rendezvous/interfaces.h"
#include "rendezvous/server.h"

#include <future>
#include <memory>
#include <string>
#include <vector>

namespace trireme::cli {

/// Whether the ranks of a host are an agent's to run, and not this process's own.
bool needs_agent(const Launch& options, const std::string& host);

/// What runs an agent on the host.
std::vector<std::string> agent_command(const Launch& options, const std::string& host);

/// Where a host may find this machine: by the way towards it, if that is known, or else wherever it tries with success.
/// Loopback comes last: it is good for a host that is this machine after all. Names are looked up in a thread, since
/// who knows them may be slow.
std::future<std::vector<std::string>> addresses_for(const Launch& options, const std::string& host);

/// A rendezvous at the first port that is free of those that may be used. Throws SystemError if none is.
std::unique_ptr<rendezvous::Server> serve(const std::string& host, const rendezvous::Ports& ports, int ranks,
                                          const Guard& guard);

}  // namespace trireme::cli
