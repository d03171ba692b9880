// The addresses of this machine, and which of them to use where several would do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::rendezvous {

struct Interface {
  std::string name;    ///< "eth0"
  std::string number;  ///< its address
};

/// Those that are up, loopback last. Addresses that mean something on one link alone (fe80::) are left out.
std::vector<Interface> interfaces();

bool is_loopback(std::string_view number);

/// The numbers of those that `choice` takes: the name of an interface ("eth0"), an address ("10.0.0.5"), a network
/// ("10.0.0.0/8", "fd00::/8"), or all but one, and but loopback ("^docker0"); empty: all but loopback. Throws
/// UsageError that lists what there is, if that is none.
std::vector<std::string> choose_addresses(const std::string& choice, const std::vector<Interface>& all = interfaces());

/// The address to be offered to peers: that on the way to them, if the choice takes it or there is no choice; otherwise
/// the first that it takes, of the same family if there is one.
std::string choose_address(const std::string& choice, const std::string& on_the_way,
                           const std::vector<Interface>& all = interfaces());

/// The number of this machine's address on the way to a host, by name or number; none if there is no way that is known.
std::optional<std::string> address_towards(const std::string& host);

/// The ports that may be listened at, from 1 to 65535; the system's own choice, if both are 0.
struct Ports {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

/// Reads "20000-20100". Throws UsageError.
Ports parse_ports(std::string_view text);

}  // namespace trireme::rendezvous
