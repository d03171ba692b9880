#include "rendezvous/interfaces.h"

#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <span>
#include <system_error>

namespace trireme::rendezvous {
namespace {

// The bytes of an address, and of a network's how many bits count.
struct Number {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  int bits = 0;
};

std::optional<Number> parse_number(const std::string& text) {
  Number number;
  number.bits = 8 * static_cast<int>(sizeof(in_addr));
  if (::inet_pton(AF_INET, text.c_str(), number.bytes.data()) == 1) return number;
  number.bits = 8 * static_cast<int>(sizeof(in6_addr));
  if (::inet_pton(AF_INET6, text.c_str(), number.bytes.data()) == 1) return number;
  return std::nullopt;
}

struct Network {
  Number number;
  int prefix = 0;

  bool holds(const Number& other) const {
    if (other.bits != number.bits) return false;
    for (int bit = 0; bit < prefix; ++bit) {
      const int mask = 0x80 >> bit % 8;
      if (((number.bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
};

// An address is a network of its own.
std::optional<Network> parse_network(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto number = parse_number(text.substr(0, slash));
  if (!number) return std::nullopt;
  Network network{.number = *number, .prefix = number->bits};
  if (slash == std::string::npos) return network;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + slash + 1, end, network.prefix);
  if (error != std::errc{} || rest != end || network.prefix < 0 || network.prefix > number->bits) return std::nullopt;
  return network;
}

bool takes(const std::string& choice, const Interface& interface) {
  if (choice.empty()) return !is_loopback(interface.number);
  if (choice.front() == '^') return interface.name != choice.substr(1) && !is_loopback(interface.number);
  if (interface.name == choice) return true;
  const auto network = parse_network(choice);
  const auto number = parse_number(interface.number);
  return network && number && network->holds(*number);
}

std::string number_of(const sockaddr* address) {
  std::array<char, NI_MAXHOST> text{};
  const socklen_t bytes = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::getnameinfo(address, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

bool is_of_one_link(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0;
}

}  // namespace

bool is_loopback(std::string_view number) { return number.starts_with("127.") || number == "::1"; }

std::vector<Interface> interfaces() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) {
    throw SystemError(
        fmt::format("the network's interfaces can't be listed: {}", std::generic_category().message(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || is_of_one_link(one->ifa_addr)) continue;
    all.push_back({one->ifa_name, number_of(one->ifa_addr)});
  }
  std::stable_partition(all.begin(), all.end(), [](const Interface& one) { return !is_loopback(one.number); });
  return all;
}

std::vector<std::string> choose_addresses(const std::string& choice, const std::vector<Interface>& all) {
  std::vector<std::string> numbers;
  std::string there_are;
  for (const Interface& one : all) {
    if (takes(choice, one)) numbers.push_back(one.number);
    there_are += fmt::format("{}{} ({})", there_are.empty() ? "" : ", ", one.name, one.number);
  }
  if (!numbers.empty() || choice.empty()) return numbers;
  const auto number = parse_number(choice.substr(0, choice.find('/')));
  if (number && !parse_network(choice)) {
    throw UsageError(
        fmt::format("the interface '{}' is no network: an address is followed by / and 0 to {}", choice, number->bits));
  }
  throw UsageError(fmt::format(
      "no address of this host is taken by the interface '{}'; it may be a name, an address, a network as in "
      "10.0.0.0/8, or ^NAME for all others; here are {}",
      choice, there_are));
}

std::string choose_address(const std::string& choice, const std::string& on_the_way,
                           const std::vector<Interface>& all) {
  if (choice.empty()) return on_the_way;
  const std::vector<std::string> numbers = choose_addresses(choice, all);
  if (std::find(numbers.begin(), numbers.end(), on_the_way) != numbers.end()) return on_the_way;
  const auto family = [](const std::string& number) { return number.find(':') == std::string::npos; };
  const auto alike = std::find_if(numbers.begin(), numbers.end(),
                                  [&](const std::string& number) { return family(number) == family(on_the_way); });
  return alike != numbers.end() ? *alike : numbers.front();
}

std::optional<std::string> address_towards(const std::string& host) {
  try {
    constexpr std::uint16_t kAny = 9;  // nothing is sent there
    for (const Address& address : resolve(host, kAny)) {
      const Descriptor socket(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
      const auto* const there = reinterpret_cast<const sockaddr*>(&address.storage);
      if (socket && ::connect(socket.get(), there, address.bytes) == 0) return local_number(socket);
    }
  } catch (const SystemError&) {  // What starts the agent may know the host by a name of its own.
  }
  return std::nullopt;
}

Ports parse_ports(std::string_view text) {
  Ports ports;
  const char* const end = text.data() + text.size();
  const auto [dash, error] = std::from_chars(text.data(), end, ports.first);
  if (error == std::errc{} && dash != end && *dash == '-') {
    const auto [rest, other_error] = std::from_chars(dash + 1, end, ports.last);
    if (other_error == std::errc{} && rest == end && ports.first > 0 && ports.first <= ports.last) return ports;
  }
  throw UsageError(fmt::format("'{}' is no range of ports: give two from 1 to 65535, as in 20000-20100", text));
}

}  // namespace trireme::rendezvous
