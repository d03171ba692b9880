// What ranks tell each other when they start, and what comes of lies.
#include "communicator/announcement.h"

#include "communicator/start.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace trireme {
namespace {

using namespace std::chrono_literals;

Announcement some_rank() {
  return {.name = "rank 3 (node2, pid 4711)",
          .job = 0xfedcba9876543210,
          .server = "10.0.0.1",
          .address = "fe80::1",
          .chosen = true,
          .network = "a kernel 4026531840",
          .ways = 2,
          .tuning = "{\"a\": 1}",
          .tuned = "a file",
          .forced = "ring",
          .connections = 64};
}

TEST(Announcement, IsReadAsItWasMeant) {
  const Announcement said = some_rank();
  const Announcement heard = Announcement::parse(said.to_text(), 3);
  EXPECT_EQ(heard.to_text(), said.to_text());
  EXPECT_EQ(heard.name, said.name);
  EXPECT_EQ(heard.job, said.job);
  EXPECT_EQ(heard.address, said.address);
  EXPECT_TRUE(heard.chosen);
  EXPECT_EQ(heard.connections, 64);
  const Surroundings around{.host = 2, .machine = "a kernel", .cores = {0, 7}};
  const Surroundings found = Surroundings::parse(around.to_text(), 3);
  EXPECT_EQ(found.host, 2);
  EXPECT_EQ(found.machine, "a kernel");
  EXPECT_EQ(found.cores, (std::vector{0, 7}));
}

TEST(Announcement, ThatMakesNoSenseNamesItsRank) {
  const auto said = [](const std::string& text) { return test::protocol_error([&] { Announcement::parse(text, 3); }); };
  for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
                                  some_rank().to_text() + "x", std::string(100000, '[')}) {
    EXPECT_EQ(said(text).find("rank 3 announced itself in a way that this build does not understand"), 0) << text;
  }
  for (const char* const host : {"-1", "4", "2.5", "1e300", "99999999999999999999", "4294967296", "\"0\"", "null"}) {
    const std::string text = std::string(R"({"cores":[],"machine":"","host":)") + host + "}";
    EXPECT_EQ(test::protocol_error([&] { Surroundings::parse(text, 3); }).find("rank 3 "), 0) << host;
  }
}

// What rank 0 of 2 says of a rank 1 that tells `lie`, in the `when`-th exchange, and else the same as rank 0.
std::string outcome_of(int when, const std::string& transport,
                       const std::function<std::string(const std::string&)>& lie) {
  int exchanges = 0;
  InitOptions options;
  options.patience = 5s;
  options.transport = transport;
  return test::protocol_error([&] {
    join({.rank = 0,
          .ranks = 2,
          .exchange =
              [&](const std::string& mine) {
                std::string other = exchanges++ == when ? lie(mine) : mine;
                const std::size_t host = other.find(R"("host":0)");  // where rank 0 is
                if (host != std::string::npos) other[host + 7] = '1';
                return std::vector<std::string>{mine, other};
              }},
         options);
  });
}

TEST(Announcement, OfOneWhoLiesEndsTheStart) {
  const auto instead = [](const std::string& text) { return [text](const std::string&) { return text; }; };
  EXPECT_EQ(outcome_of(0, "auto", instead("{}")).find("rank 1 announced itself"), 0);
  EXPECT_EQ(outcome_of(1, "auto", instead("nothing")).find("rank 1 announced shared memory"), 0);
  EXPECT_EQ(outcome_of(1, "tcp", instead(R"({"cores":[],"host":2,"machine":""})")).find("rank 1 says that it shares"),
            0);
  EXPECT_EQ(outcome_of(2, "tcp", instead("localhost:http")).find("rank 1 announced an address"), 0);
}

}  // namespace
}  // namespace trireme
