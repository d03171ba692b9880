// The text form of schedules: what it accepts, what it prints, and where it says that a file is wrong.
#include "support/random.h"
#include "support/throws.h"
#include "trireme/program.h"
#include "trireme/verify.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace trireme {
namespace {

using test::usage_error;

constexpr std::string_view kExchange =
    "algorithm exchange\n"
    "collective allreduce\n"
    "ranks 2\n"
    "blocks 4\n"
    "\n"
    "rank 0\n"
    "  send 0..1 to 1\n"
    "  add 2..3 from 1\n"
    "  send 2..3 to 1\n"
    "  receive 0..1 from 1\n"
    "\n"
    "rank 1\n"
    "  send 2..3 to 0\n"
    "  add 0..1 from 0\n"
    "  send 0..1 to 0\n"
    "  receive 2..3 from 0\n";

constexpr std::string_view kServed =
    "algorithm served\n"
    "collective allreduce\n"
    "ranks 3\n"
    "blocks 1\n"
    "servers 1\n"
    "\n"
    "rank 0\n"
    "  send 0 to 2\n"
    "  receive 0 from 2\n"
    "\n"
    "rank 1\n"
    "  send 0 to 2\n"
    "  receive 0 from 2\n"
    "\n"
    "rank 2\n"
    "  receive 0 from 0\n"
    "  add 0 from 1\n"
    "  send 0 to 0\n"
    "  send 0 to 1\n";

constexpr std::string_view kRooted =
    "algorithm rooted\n"
    "collective broadcast\n"
    "ranks 3\n"
    "blocks 2\n"
    "root 2\n"
    "\n"
    "rank 0\n"
    "  receive 0..1 from 2\n"
    "\n"
    "rank 1\n"
    "  receive 0..1 from 2\n"
    "\n"
    "rank 2\n"
    "  send 0..1 to 0\n"
    "  send 0..1 to 1\n";

TEST(Text, PrintsWhatItReads) {
  for (const std::string_view text : {kExchange, kServed, kRooted}) {
    const Schedule schedule = parse_schedule(text, "test");
    EXPECT_EQ(to_text(schedule), text);
    EXPECT_TRUE(verify(schedule).proven()) << verify(schedule).finding->message;
  }
}

TEST(Text, ReadsEveryField) {
  const Schedule exchange = parse_schedule(kExchange, "test");
  EXPECT_EQ(exchange.algorithm, "exchange");
  EXPECT_EQ(exchange.collective, Collective::allreduce);
  EXPECT_EQ(exchange.root, 0);
  EXPECT_EQ(exchange.servers, 0);
  EXPECT_EQ(exchange.ranks(), 2);
  EXPECT_EQ(exchange.blocks(), 4);
  Program first{.blocks = 4};
  first.send({0, 2}, 1);
  first.add({2, 2}, 1);
  first.send({2, 2}, 1);
  first.receive({0, 2}, 1);
  EXPECT_EQ(exchange.programs[0], first);
  EXPECT_EQ(to_text(first, 0),
            "rank 0\n  send 0..1 to 1\n  add 2..3 from 1\n  send 2..3 to 1\n  receive 0..1 from 1\n");

  EXPECT_EQ(parse_schedule(kServed, "test").servers, 1);
  EXPECT_EQ(parse_schedule(kServed, "test").workers(), 2);
  EXPECT_EQ(parse_schedule(kRooted, "test").root, 2);
  EXPECT_EQ(parse_schedule(kRooted, "test").collective, Collective::broadcast);
}

TEST(Text, LeavesLayoutAndOrderFree) {
  const std::string_view text =
      "# a comment first\n"
      "\n"
      "\tblocks 4   # four\n"
      "   ranks\t2\r\n"
      "collective allreduce\n"
      "algorithm exchange#and a comment without a space\n"
      "rank 1\n"
      "send 2..3 to 0\n"
      "add 0..1 from 0\n"
      "  \n"
      "        # indented\n"
      "        send 0..1 to 0\n"
      "receive 2..3 from 0\n"
      "      rank 0\n"
      "send   0..1   to   1\n"
      "add 2..3 from 1\f\n"
      "send 2.. 3 to 1\n"
      "receive 0..1 from 1";
  EXPECT_EQ(parse_schedule(text, "test"), parse_schedule(kExchange, "test"));
}

TEST(Text, NamesAnAlgorithmAfterItsSource) {
  const std::string_view text = "ranks 1\nblocks 1\nrank 0\n";
  EXPECT_EQ(parse_schedule(text, "plan.txt").algorithm, "plan.txt");
  for (const std::string_view source : {"plan.txt", "my plan.txt", "", "#1", "two\nlines"}) {
    const Schedule schedule = parse_schedule(text, source);
    EXPECT_EQ(schedule.algorithm, source);
    EXPECT_EQ(parse_schedule(to_text(schedule), source), schedule);
  }
}

TEST(Text, ReadsTheWidestNumbers) {
  const Schedule schedule = parse_schedule("ranks 2\nblocks 16777216\nrank 0\nsend 16777215 to 1\nrank 1\n", "test");
  EXPECT_EQ(schedule.blocks(), 1 << 24);
  EXPECT_EQ(schedule.programs[0].steps[0].run, trireme::Run((1 << 24) - 1));
}

struct Malformed {
  std::string_view text;
  std::string_view message;
};

// Every message begins with source, line and column of the word that is wrong.
TEST(Text, PointsAtWhatIsMalformed) {
  const std::vector<Malformed> cases{
      // Words.
      {"rings 3\n", "f:1:1: expected algorithm, collective, ranks, blocks, root, servers or rank, found 'rings'"},
      {"ranks 2\nblocks 1\nrank 0\n  push 0 to 1\n", "f:4:3: expected send, receive, add or rank, found 'push'"},
      {"ranks 2\nblocks 1\nrank 0\nSEND 0 to 1\n", "f:4:1: expected send, receive, add or rank, found 'SEND'"},
      {"\n# x\n  \t!\n", "f:3:4: expected algorithm, collective, ranks, blocks, root, servers or rank, found '!'"},
      {"ranks 2\nblocks 1\nrank 0\n  send 0 from 1\n", "f:4:10: expected 'to', found 'from'"},
      {"ranks 2\nblocks 1\nrank 0\n  add 0 to 1\n", "f:4:9: expected 'from', found 'to'"},
      {"ranks 2\nblocks 1\nrank 0\n  receive 0 1\n", "f:4:13: expected 'from', found '1'"},
      {"ranks 2\nblocks 1\nrank 0\n  send 0\n", "f:4:9: expected 'to', found the end of the line"},
      {"collective allredcue\n", "f:1:12: no collective is called 'allredcue'; did you mean 'allreduce'?"},
      {"collective\n",
       "f:1:11: no collective is called ''; there are allreduce, reduce_scatter, allgather, broadcast, reduce, gather, "
       "scatter, all_to_all, barrier"},
      {"algorithm\n", "f:1:10: expected the algorithm's name, found the end of the line"},
      {"algorithm   # none\n", "f:1:13: expected the algorithm's name, found the end of the line"},
      // Numbers.
      {"ranks\n", "f:1:6: expected a number of ranks, found the end of the line"},
      {"ranks many\n", "f:1:7: expected a number of ranks, found 'many'"},
      {"ranks +2\n", "f:1:7: expected a number of ranks, found '+2'"},
      {"ranks 0\n", "f:1:7: expected a number of ranks from 1 to 1048576, found '0'"},
      {"ranks -2\n", "f:1:7: expected a number of ranks from 1 to 1048576, found '-2'"},
      {"ranks 1048577\n", "f:1:7: expected a number of ranks from 1 to 1048576, found '1048577'"},
      {"ranks 99999999999999999999\n",
       "f:1:7: expected a number of ranks from 1 to 1048576, found '99999999999999999999'"},
      {"ranks 4294967298\n", "f:1:7: expected a number of ranks from 1 to 1048576, found '4294967298'"},
      {"ranks 2.5\n", "f:1:8: expected the end of the line, found '.5'"},
      {"ranks 2x\n", "f:1:8: expected the end of the line, found 'x'"},
      {"ranks 0x2\n", "f:1:7: expected a number of ranks from 1 to 1048576, found '0x2'"},
      {"blocks 0\n", "f:1:8: expected a number of blocks from 1 to 16777216, found '0'"},
      {"blocks 16777217\n", "f:1:8: expected a number of blocks from 1 to 16777216, found '16777217'"},
      {"blocks -99999999999\n", "f:1:8: expected a number of blocks from 1 to 16777216, found '-99999999999'"},
      {"root -1\n", "f:1:6: expected the root's rank from 0 to 1048575, found '-1'"},
      {"root\n", "f:1:5: expected the root's rank, found the end of the line"},
      {"servers x\n", "f:1:9: expected a number of servers, found 'x'"},
      {"servers -1\n", "f:1:9: expected a number of servers from 0 to 1048575, found '-1'"},
      // Blocks and peers.
      {"ranks 2\nblocks 3\nrank 0\n  send 3 to 1\n", "f:4:8: expected a block from 0 to 2, found '3'"},
      {"ranks 2\nblocks 3\nrank 0\n  send -1 to 1\n", "f:4:8: expected a block from 0 to 2, found '-1'"},
      {"ranks 2\nblocks 3\nrank 0\n  send to 1\n", "f:4:8: expected a block, found 'to'"},
      {"ranks 2\nblocks 3\nrank 0\n  send\n", "f:4:7: expected a block, found the end of the line"},
      {"ranks 2\nblocks 3\nrank 0\n  send 1..3 to 1\n", "f:4:11: expected the run's last block from 1 to 2, found '3'"},
      {"ranks 2\nblocks 3\nrank 0\n  send 1..0 to 1\n", "f:4:11: expected the run's last block from 1 to 2, found '0'"},
      {"ranks 2\nblocks 3\nrank 0\n  send 1.. to 1\n", "f:4:12: expected the run's last block, found 'to'"},
      {"ranks 2\nblocks 3\nrank 0\n  send 1 ..2 to 1\n", "f:4:10: expected 'to', found '..2'"},
      {"ranks 2\nblocks 3\nrank 0\n  send 1-2 to 1\n", "f:4:9: expected 'to', found '-2'"},
      {"ranks 2\nblocks 3\nrank 0\n  send 0 to 2\n", "f:4:13: expected the peer's rank from 0 to 1, found '2'"},
      {"ranks 2\nblocks 3\nrank 0\n  send 0 to\n", "f:4:12: expected the peer's rank, found the end of the line"},
      {"ranks 2\nblocks 3\nrank 0\n  send 0 to one\n", "f:4:13: expected the peer's rank, found 'one'"},
      {"ranks 2\nblocks 3\nrank 1\n  add 0 from 1\n", "f:4:14: rank 1 names itself as its peer"},
      // Sections.
      {"ranks 2\nblocks 1\nrank 2\n", "f:3:6: expected a rank from 0 to 1, found '2'"},
      {"ranks 2\nblocks 1\nrank\n", "f:3:5: expected a rank, found the end of the line"},
      {"ranks 2\nblocks 1\nrank 0\nrank 1\n\nrank 0\n", "f:6:6: rank 0 has a section already"},
      {"ranks 3\nblocks 1\nrank 0\nrank 2\n", "f:4:1: rank 1 has no section"},
      {"blocks 1\nrank 0\n", "f:2:1: expected a line 'ranks P' before the first rank, found 'rank'"},
      {"ranks 1\nrank 0\n", "f:2:1: expected a line 'blocks B' before the first rank, found 'rank'"},
      {"ranks 2\nblocks 1\nsend 0 to 1\n", "f:3:1: expected a line 'rank R' before the first step, found 'send'"},
      {"ranks 1\nblocks 1\nrank 0\nblocks 2\n", "f:4:1: expected send, receive, add or rank, found 'blocks'"},
      {"ranks 1\nblocks 1\nranks 2\nrank 0\n", "f:3:1: there is a line 'ranks' already"},
      {"algorithm a\nalgorithm b\n", "f:2:1: there is a line 'algorithm' already"},
      {"ranks 1\nblocks 1\n", "f:2:1: the file ends before the first 'rank' section"},
      {"ranks 2\nblocks 1\nservers 2\nrank 0\nrank 1\n", "f:5:1: servers must be fewer than ranks"},
      {"ranks 2\nblocks 1\nroot 2\nrank 0\nrank 1\n", "f:5:1: there is no rank 2 to be root"},
      {"ranks 2\nblocks 1\nroot 1\nservers 1\nrank 0\nrank 1\n", "f:6:1: there is no rank 1 to be root"},
      // What stands after the end.
      {"ranks 2 3\n", "f:1:9: expected the end of the line, found '3'"},
      {"algorithm my ring\n", "f:1:14: expected the end of the line, found 'ring'"},
      {"ranks 2\nblocks 1\nrank 0 1\n", "f:3:8: expected the end of the line, found '1'"},
      {"ranks 2\nblocks 1\nrank 0\n  send 0 to 1  now # ok\n", "f:4:16: expected the end of the line, found 'now'"},
      {"ranks 2\nblocks 1\nrank 0\n  send 0 to 1, 2\n", "f:4:14: expected the end of the line, found ','"},
      // Nothing at all.
      {"", "f:1:1: the file ends before the first 'rank' section"},
      {"\n\n", "f:2:1: the file ends before the first 'rank' section"},
      {"# only a comment", "f:1:1: the file ends before the first 'rank' section"},
  };
  for (const Malformed& malformed : cases) {
    EXPECT_EQ(usage_error([&] { parse_schedule(malformed.text, "f"); }), malformed.message) << malformed.text;
  }
}

TEST(Text, NamesTheSource) {
  EXPECT_EQ(usage_error([] { parse_schedule("?", "/tmp/a plan.txt"); }).substr(0, 20), "/tmp/a plan.txt:1:1:");
}

// Whatever the text, the reader returns a schedule or throws a UsageError; a schedule that it returns comes back from
// its own text, and the verifier has a verdict on it. Says whether there was a schedule.
bool read_anything(const std::string& text) {
  Schedule schedule;
  try {
    schedule = parse_schedule(text, "fuzz");
  } catch (const UsageError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("fuzz:")) << error.what();
    return false;
  }
  EXPECT_EQ(parse_schedule(to_text(schedule), "fuzz"), schedule) << text;
  constexpr int kSmall = 1000;
  if (schedule.blocks() > kSmall) return true;
  EXPECT_NO_THROW(verify(schedule)) << text;
  return true;
}

TEST(Text, StandsGarbage) {
  test::Random random(3);
  for (int i = 0; i < 100 * test::kEffort; ++i) {
    std::string text(random.below(200), '\0');
    for (char& c : text) c = static_cast<char>(random.below(256));
    read_anything(text);
  }
}

TEST(Text, StandsRandomEdits) {
  const std::vector<std::string> originals{std::string(kExchange), std::string(kServed), std::string(kRooted)};
  const std::vector<std::string> pieces{"0",       "9",        " ",
                                        "\n",      "#",        "..",
                                        "-",       "rank",     "ranks",
                                        "blocks",  "root ",    "servers 1",
                                        "send ",   "receive ", "add ",
                                        " to ",    " from ",   std::string(1, '\0'),
                                        "\xff",    "999999",   "collective barrier\n",
                                        "rank 0\n"};
  test::Random random(4);
  int schedules = 0;
  const int tries = 2000 * test::kEffort;
  for (int i = 0; i < tries; ++i) {
    std::string text = random.pick(originals);
    for (int edits = random.between(1, 3); edits > 0 && !text.empty(); --edits) {
      const int at = random.below(static_cast<int>(text.size()));
      // Where a digit was, another one mostly makes another schedule.
      const std::size_t digit = text.find_first_of("0123456789", at);
      switch (random.below(10)) {
        case 0: text[at] = static_cast<char>(random.below(256)); break;
        case 1: text.erase(at, random.between(1, 8)); break;
        case 2: text.insert(at, random.pick(pieces)); break;
        case 3: text.resize(at); break;
        case 4: text.insert(at, text.substr(random.below(static_cast<int>(text.size())), random.between(1, 30))); break;
        default:
          if (digit != std::string::npos) text[digit] = static_cast<char>('0' + random.below(4));
      }
    }
    SCOPED_TRACE(i);
    if (read_anything(text)) ++schedules;
    if (HasFailure()) return;
  }
  EXPECT_GT(schedules, tries / 20);
  EXPECT_LT(schedules, tries / 2);
}

TEST(Collective, HasAName) {
  for (int i = 0; i < kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    EXPECT_EQ(parse_collective(to_string(collective)), collective);
  }
  EXPECT_EQ(usage_error([] { parse_collective("all_reduce"); }),
            "no collective is called 'all_reduce'; did you mean 'allreduce'?");
  EXPECT_EQ(usage_error([] { parse_collective("Barrier"); }),
            "no collective is called 'Barrier'; did you mean 'barrier'?");
}

TEST(Share, IsOneRunARank) {
  EXPECT_EQ(share_of_rank(0, 1, 1), trireme::Run(0));
  EXPECT_EQ(share_of_rank(2, 3, 3), trireme::Run(2));
  EXPECT_EQ(share_of_rank(1, 3, 12), trireme::Run(4, 4));
}

}  // namespace
}  // namespace trireme
