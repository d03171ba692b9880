// Which of a machine's addresses is taken.
#include "rendezvous/interfaces.h"

#include "rendezvous/socket.h"
#include "support/throws.h"

#include <gtest/gtest.h>

namespace trireme::rendezvous {
namespace {

const std::vector<Interface> kSome{{"eth0", "10.1.2.3"},      {"eth0", "fd00::3"}, {"eth1", "192.168.7.9"},
                                   {"docker0", "172.17.0.1"}, {"lo", "127.0.0.1"}, {"lo", "::1"}};

using Numbers = std::vector<std::string>;

TEST(Interfaces, AreChosenByNameAddressOrNetwork) {
  EXPECT_EQ(choose_addresses("eth0", kSome), (Numbers{"10.1.2.3", "fd00::3"}));
  EXPECT_EQ(choose_addresses("192.168.7.9", kSome), (Numbers{"192.168.7.9"}));
  EXPECT_EQ(choose_addresses("10.0.0.0/8", kSome), (Numbers{"10.1.2.3"}));
  EXPECT_EQ(choose_addresses("10.1.2.0/23", kSome), (Numbers{"10.1.2.3"}));
  EXPECT_EQ(choose_addresses("fd00::/8", kSome), (Numbers{"fd00::3"}));
  EXPECT_EQ(choose_addresses("0.0.0.0/0", kSome).size(), 4U);
  EXPECT_EQ(choose_addresses("lo", kSome), (Numbers{"127.0.0.1", "::1"}));
}

TEST(Interfaces, AreNoLoopbackUnlessAskedFor) {
  EXPECT_EQ(choose_addresses("", kSome), (Numbers{"10.1.2.3", "fd00::3", "192.168.7.9", "172.17.0.1"}));
  EXPECT_EQ(choose_addresses("^docker0", kSome), (Numbers{"10.1.2.3", "fd00::3", "192.168.7.9"}));
}

TEST(Interfaces, OnTheWayAreTakenFirst) {
  EXPECT_EQ(choose_address("", "127.0.0.1", kSome), "127.0.0.1");
  EXPECT_EQ(choose_address("^docker0", "192.168.7.9", kSome), "192.168.7.9");
  EXPECT_EQ(choose_address("^eth0", "10.1.2.3", kSome), "192.168.7.9");
  EXPECT_EQ(choose_address("eth0", "fd00::77", kSome), "fd00::3");
  EXPECT_EQ(choose_address("eth1", "fd00::3", kSome), "192.168.7.9");
}

TEST(Interfaces, ThatAreNotThereAreRefusedWithThoseThatAre) {
  for (const std::string choice : {"eth7", "10.9.0.0/16", "10.1.2.4"}) {
    const std::string message = test::usage_error([&] { choose_addresses(choice, kSome); });
    EXPECT_NE(message.find(choice), std::string::npos) << message;
    EXPECT_NE(message.find("docker0 (172.17.0.1)"), std::string::npos) << message;
  }
  const auto refused = [](const std::string& choice, const std::string& why) {
    const std::string message = test::usage_error([&] { choose_addresses(choice, kSome); });
    EXPECT_NE(message.find("'" + choice + "' is no network: an address is followed by / and " + why), std::string::npos)
        << message;
  };
  refused("10.0.0.0/33", "0 to 32");
  refused("10.0.0.0/", "0 to 32");
  refused("fd00::/129", "0 to 128");
}

TEST(Interfaces, OfThisMachineHaveLoopbackLast) {
  const auto all = interfaces();
  ASSERT_FALSE(all.empty());
  EXPECT_TRUE(is_loopback(all.back().number)) << all.back().number;
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_FALSE(address_towards("no-such-host.invalid").has_value());
}

TEST(Addresses, HaveOnePairOfBracketsAtMost) {
  EXPECT_EQ(parse_host_and_port("[::1]:30").value().host, "::1");
  EXPECT_EQ(parse_host_and_port("node1:30").value().host, "node1");
  for (const std::string wrong : {"[[]]:30", "[[::1]]:30", "[:30", "]:30", "[]:30", "[a:30", "a]:30", "::1:30"}) {
    EXPECT_FALSE(parse_host_and_port(wrong).has_value()) << wrong;
  }
}

TEST(Ports, AreARange) {
  EXPECT_EQ(parse_ports("20000-20100").first, 20000);
  EXPECT_EQ(parse_ports("20000-20100").last, 20100);
  EXPECT_EQ(parse_ports("7-7").last, 7);
  for (const std::string text : {"", "20000", "-", "5-4", "0-5", "1-65536", "1-2-3", "a-b", "1-2x"}) {
    EXPECT_NE(test::usage_error([&] { parse_ports(text); }).find("20000-20100"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trireme::rendezvous
