// Who a process is, from variables given as a table.
#include "rendezvous/environment.h"

#include "support/throws.h"

#include <gtest/gtest.h>

#include <map>

namespace trireme::rendezvous {
namespace {

using Variables = std::map<std::string, std::string>;

Place place_from(const Variables& variables) {
  return place_from_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

const Variables kByHand{{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node-1"}, {"MASTER_PORT", "29500"}};
const Variables kByRun{{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"TRIREME_RENDEZVOUS", "127.0.0.1:4711"}};

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Environment, OfTriremeRun) {
  const Place place = place_from(with(with(kByRun, "MASTER_ADDR", "elsewhere"), "MASTER_PORT", "1"));
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.ranks, 4);
  EXPECT_EQ(place.host, "127.0.0.1");
  EXPECT_EQ(place.port, 4711);
  EXPECT_FALSE(place.serve);
  EXPECT_EQ(place.started_by, "trireme run");
  const Place six = place_from(with(kByRun, "TRIREME_RENDEZVOUS", "[fe80::1%eth0]:80"));
  EXPECT_EQ(six.host, "fe80::1%eth0");
  EXPECT_EQ(six.port, 80);
}

TEST(Environment, OfFourVariables) {
  const Place place = place_from(kByHand);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.ranks, 4);
  EXPECT_EQ(place.host, "node-1");
  EXPECT_EQ(place.port, 29500);
  EXPECT_FALSE(place.serve);
  const Place first = place_from(with(kByHand, "RANK", "0"));
  EXPECT_TRUE(first.serve);
  EXPECT_NE(first.started_by, "");
}

struct Bad {
  const char* about;
  Variables variables;
  std::vector<std::string> words;
};

TEST(Environment, ThatIsWrongIsNamedAndExplained) {
  const std::vector<Bad> cases{
      {"nothing", {}, {"trireme run -n 4 ./program", "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"}},
      {"no rank", without(kByHand, "RANK"), {"WORLD_SIZE is set, but RANK is not", "trireme run"}},
      {"no size", without(kByHand, "WORLD_SIZE"), {"RANK is set, but WORLD_SIZE is not"}},
      {"no host", without(kByHand, "MASTER_ADDR"), {"RANK is set, but MASTER_ADDR is not"}},
      {"no port", without(kByHand, "MASTER_PORT"), {"RANK is set, but MASTER_PORT is not"}},
      {"port alone", {{"MASTER_PORT", "1"}}, {"MASTER_PORT is set, but WORLD_SIZE is not"}},
      {"rendezvous alone", {{"TRIREME_RENDEZVOUS", "a:1"}}, {"TRIREME_RENDEZVOUS is set, but WORLD_SIZE is not"}},
      {"words", with(kByHand, "RANK", "two"), {"RANK is 'two'", "from 0 to 3"}},
      {"half a number", with(kByHand, "RANK", "2x"), {"RANK is '2x'"}},
      {"empty", with(kByHand, "RANK", ""), {"RANK is ''"}},
      {"space", with(kByHand, "RANK", " 2"), {"RANK is ' 2'"}},
      {"negative", with(kByHand, "RANK", "-1"), {"RANK is '-1'"}},
      {"rank too large", with(kByHand, "RANK", "4"), {"RANK is '4'", "WORLD_SIZE 4", "from 0 to 3"}},
      {"beyond int", with(kByHand, "RANK", "99999999999"), {"RANK is '99999999999'"}},
      {"one rank", with(with(kByHand, "WORLD_SIZE", "1"), "RANK", "1"), {"has to be 0"}},
      {"no ranks", with(kByHand, "WORLD_SIZE", "0"), {"WORLD_SIZE is '0'", "1 or more"}},
      {"fewer", with(kByHand, "WORLD_SIZE", "-4"), {"WORLD_SIZE is '-4'"}},
      {"beyond reason", with(kByHand, "WORLD_SIZE", "2000000000"), {"WORLD_SIZE is '2000000000'"}},
      {"empty host", with(kByHand, "MASTER_ADDR", ""), {"MASTER_ADDR is empty"}},
      {"port 0", with(kByHand, "MASTER_PORT", "0"), {"MASTER_PORT is '0'", "1 to 65535"}},
      {"port too large", with(kByHand, "MASTER_PORT", "65536"), {"MASTER_PORT is '65536'"}},
      {"rendezvous without port", with(kByRun, "TRIREME_RENDEZVOUS", "host"), {"TRIREME_RENDEZVOUS is 'host'", "PORT"}},
      {"rendezvous without host", with(kByRun, "TRIREME_RENDEZVOUS", ":1"), {"TRIREME_RENDEZVOUS is ':1'"}},
      {"rendezvous port", with(kByRun, "TRIREME_RENDEZVOUS", "h:70000"), {"TRIREME_RENDEZVOUS is 'h:70000'"}},
      {"rendezvous port 0", with(kByRun, "TRIREME_RENDEZVOUS", "h:0"), {"TRIREME_RENDEZVOUS is 'h:0'"}},
      {"bare IPv6", with(kByRun, "TRIREME_RENDEZVOUS", "::1:5"), {"[IPv6]:PORT"}},
      {"rendezvous and bad rank", with(kByRun, "RANK", "7"), {"RANK is '7'"}},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.about);
    const std::string message = test::usage_error([&] { place_from(bad.variables); });
    for (const std::string& word : bad.words) EXPECT_NE(message.find(word), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace trireme::rendezvous
