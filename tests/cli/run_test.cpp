// `trireme run` as a user meets it: shell scripts as ranks, what they are told, their output, and wrong use.
#include "cli/launch.h"
#include "rendezvous/client.h"
#include "rendezvous/socket.h"
#include "transport/wire.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <poll.h>
#include <sched.h>
#include <set>
#include <sstream>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace trireme {
namespace {

TEST(Run, PrefixesEachLineWithItsRank) {
  const Ran ran = run_ranks(3, "echo one; echo; echo error $RANK >&2; printf 'no end'");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] ", "[0] no end", "[0] one", "[1] ", "[1] no end",
                                                             "[1] one", "[2] ", "[2] no end", "[2] one"}));
  EXPECT_EQ(sorted_lines(ran.err), (std::vector<std::string>{"[0] error 0", "[1] error 1", "[2] error 2"}));
  EXPECT_EQ(run_ranks(1, "printf 'a\\nb'").out, "[0] a\n[0] b\n");
  EXPECT_TRUE(contains(run_ranks(12, "echo x").out, "[ 3] x\n"));
  EXPECT_TRUE(contains(run_ranks(12, "echo x").out, "[11] x\n"));
  EXPECT_TRUE(contains(run_ranks(10, "echo x").out, "[3] x\n"));
  EXPECT_EQ(run_ranks(1, "printf 'a\\nb'; printf c >&2", {"--no-prefix"}).out, "a\nb");
}

TEST(Run, LeavesTheProgramsArgumentsAlone) {
  std::vector<std::string> arguments = launch(1, R"(for a in "$0" "$@"; do echo "<$a>"; done)");
  for (const char* const argument : {"-n", "7", "--help", "", "--", "a b", "plan", "--no-prefix", "--"}) {
    arguments.emplace_back(argument);
  }
  const Ran ran = run(arguments);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "[0] <-n>\n[0] <7>\n[0] <--help>\n[0] <>\n[0] <-->\n[0] <a b>\n[0] <plan>\n[0] <--no-prefix>\n[0] <-->\n");
}

TEST(Run, TakesDashesBeforeTheProgram) {
  const auto try_to_run = [](std::vector<std::string> words) {
    words.insert(words.begin(), {TRIREME_PROGRAM, "run", "-n", "1"});
    return run(words);
  };
  const Ran ran = try_to_run({"--", "echo", "-n", "7", "--", "plan", "--help"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "[0] 7 -- plan --help\n");
  EXPECT_EQ(try_to_run({"--no-prefix", "--", "echo", "hello"}).out, "hello\n");
  // After them nothing is an option of the launcher, nor one of its commands.
  EXPECT_TRUE(contains(try_to_run({"--", "--no-prefix"}).err, "--no-prefix can't be started"));
  EXPECT_TRUE(contains(try_to_run({"--", "simulate"}).err, "simulate can't be started"));
  const Ran nothing = try_to_run({"--"});
  EXPECT_EQ(nothing.status, 2);
  EXPECT_TRUE(contains(nothing.err, "give a program")) << nothing.err;
}

TEST(Run, MixesNoLines) {
  // Each rank writes long lines in small pieces to both, and both go to the same place.
  const std::string script = R"(
    line=$(printf "%02d" $RANK)
    for i in 1 2 3 4 5 6 7 8 9 10; do line=$line$line; done
    for i in $(seq 100); do printf "%s $i " $line; printf "%s end\n" $line; echo $line err $i >&2; done)";
  const Ran ran = run(by_shell(R"(exec "$0" "$@" 2>&1)", launch(16, script)));
  EXPECT_EQ(ran.status, 0);
  std::map<std::string, int> next;
  int errors = 0;
  std::istringstream stream(ran.out);
  for (std::string line; std::getline(stream, line);) {
    ASSERT_GT(line.size(), 2000U);
    const std::string rank = line.substr(5, 2);
    std::string text;
    for (int i = 0; i < 1024; ++i) text += rank;
    const std::string prefix = fmt::format("[{:2}] {}", std::stoi(rank), text);
    if (contains(line, "err")) {
      ++errors;
      ASSERT_EQ(line.compare(0, prefix.size() + 5, prefix + " err "), 0) << line;
    } else {
      ASSERT_EQ(line, fmt::format("{} {} {} end", prefix, ++next[rank], text));
    }
  }
  EXPECT_EQ(errors, 1600);
  ASSERT_EQ(next.size(), 16U);
  for (const auto& [rank, lines] : next) EXPECT_EQ(lines, 100) << rank;
}

TEST(Run, PassesOnOneEndlessLine) {
  const Ran ran = run_ranks(2, "head -c 5000000 /dev/zero | tr '\\0' $RANK");
  EXPECT_EQ(ran.status, 0);
  const auto lines = sorted_lines(ran.out);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "[0] " + std::string(5'000'000, '0'));
  EXPECT_EQ(lines[1], "[1] " + std::string(5'000'000, '1'));
}

TEST(Run, TellsRanksWhoTheyAre) {
  const Ran ran = run_ranks(2, "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR");
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 0 2 0 2 127.0.0.1", "[1] 1 2 1 2 127.0.0.1"}));
  // All the same for all, and the programs' own port is not the launcher's.
  const Ran ports = run_ranks(2, "echo $TRIREME_RENDEZVOUS; echo $MASTER_ADDR:$MASTER_PORT", {"--no-prefix"});
  const auto lines = sorted_lines(ports.out);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 2U) << ports.out;
}

TEST(Run, SetsThreadsUnlessTheUserHas) {
  const std::string show = "echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS";
  const std::string alone = run_ranks(1, show, {"--no-prefix"}).out;
  EXPECT_GE(std::stoi(alone), 1);
  EXPECT_EQ(run_ranks(1, show).out, "[0] " + alone);
  for (const std::string& line : sorted_lines(run_ranks(200, show, {"--no-prefix"}).out)) EXPECT_EQ(line, "1 1");
  ::setenv("OMP_NUM_THREADS", "77", 1);
  const std::string kept = run_ranks(1, show).out;
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(kept.substr(0, 7), "[0] 77 ");
  EXPECT_FALSE(contains(kept, "77 77"));
}

// What a rank, and this process, may run on.
const std::string kShowCpus = "grep Cpus_allowed: /proc/self/status";

TEST(Run, PinsRanksWhereThereAreCoresEnough) {
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mine), &mine), 0);
  const std::string all = run({"/bin/sh", "-c", kShowCpus}).out;
  EXPECT_EQ(run_ranks(1, kShowCpus, {"--no-prefix"}).out, all);
  for (const std::string& line : sorted_lines(run_ranks(2, kShowCpus, {"--no-prefix", "--no-pin"}).out)) {
    EXPECT_EQ(line + "\n", all);
  }
  const auto crowd = sorted_lines(run_ranks(CPU_COUNT(&mine) + 1, kShowCpus, {"--no-prefix"}).out);
  EXPECT_EQ(crowd.size(), static_cast<std::size_t>(CPU_COUNT(&mine) + 1));
  for (const std::string& line : crowd) EXPECT_EQ(line + "\n", all);

  // As many ranks as cores: each has its own. All have the same, if there are fewer cores than hardware threads.
  const int cores = std::stoi(run_ranks(1, "echo $OMP_NUM_THREADS", {"--no-prefix"}).out);
  if (cores > 1) {
    const auto pinned = sorted_lines(run_ranks(cores, kShowCpus, {"--no-prefix"}).out);
    EXPECT_EQ(std::set<std::string>(pinned.begin(), pinned.end()).size(), static_cast<std::size_t>(cores));
  }
}

TEST(Run, UsesNoCoresButItsOwn) {
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(mine), &mine), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = CPU_SETSIZE - 1; CPU_COUNT(&one) == 0; --cpu) {
    if (CPU_ISSET(cpu, &mine)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  const std::string expected = run({"/bin/sh", "-c", kShowCpus}).out;
  const Ran alone = run_ranks(1, kShowCpus + "; echo $OMP_NUM_THREADS", {"--no-prefix"});
  const Ran two = run_ranks(2, kShowCpus, {"--no-prefix"});
  ::sched_setaffinity(0, sizeof(mine), &mine);
  EXPECT_EQ(alone.out, expected + "1\n");
  EXPECT_EQ(two.out, expected + expected);
}

TEST(Run, GivesStandardInputToRankZero) {
  const Ran ran = run(by_shell(R"(echo hello | "$0" "$@")", launch(2, R"(read line; echo "$? <$line>")")));
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 0 <hello>", "[1] 1 <>"}));
}

TEST(Run, HoldsTheRendezvous) {
  Started started(launch(2, "echo $TRIREME_RENDEZVOUS $TRIREME_SECRET; exec sleep 100"));
  ASSERT_TRUE(comes_true([&] { return sorted_lines(started.out()).size() == 2; }));
  const std::string line = sorted_lines(started.out())[0].substr(4);
  const auto address = rendezvous::parse_host_and_port(line.substr(0, line.find(' ')));
  const Guard guard{.secret = Secret(line.substr(line.find(' ') + 1))};
  ASSERT_TRUE(address.has_value()) << started.out();
  const auto meet = [&](int rank) {
    rendezvous::Client client({.rank = rank, .ranks = 2, .host = address->host, .port = address->port}, 10s, guard);
    return client.exchange(std::to_string(rank), Clock::now() + 10s);
  };
  for (int time = 0; time < 3; ++time) {  // One program after the other.
    std::vector<std::string> other;
    std::thread thread([&] { other = meet(1); });
    EXPECT_EQ(meet(0), (std::vector<std::string>{"0", "1"}));
    thread.join();
    EXPECT_EQ(other, (std::vector<std::string>{"0", "1"}));
  }
}

TEST(Run, GivesEachJobASecretThatTheProcessListDoesNotShow) {
  const std::string script =
      "echo $TRIREME_SECRET $TRIREME_ENCRYPT; ps -ww -o args= -p $$,$PPID | grep -c $TRIREME_SECRET; true";
  std::set<std::string> secrets;
  for (const bool encrypt : {false, true}) {
    const Ran ran = run_ranks(2, script, encrypt ? std::vector<std::string>{"--encrypt"} : std::vector<std::string>{});
    const auto lines = sorted_lines(ran.out);
    ASSERT_EQ(lines.size(), 4) << ran.out << ran.err;
    EXPECT_EQ(lines[0], "[0] 0");  // lines with the secret
    EXPECT_EQ(lines[1].substr(4), lines[3].substr(4));
    EXPECT_EQ(lines[1].size(), 4 + 64 + 2);
    EXPECT_EQ(lines[1].back(), encrypt ? '1' : '0');
    secrets.insert(lines[1]);
  }
  EXPECT_EQ(secrets.size(), 2);
}

// A connection to the port at which a rank's peers reach it, as its log says.
rendezvous::Descriptor connect_to_rank(int rank, const std::string& log) {
  const std::string said = fmt::format("trireme: rank {}: peers reach it at ", rank);
  const auto lines = lines_with(log, said);
  if (lines.size() != 1) {
    ADD_FAILURE() << log;
    return rendezvous::Descriptor();
  }
  const std::string rest = lines[0].substr(lines[0].find(said) + said.size());
  const auto address = rendezvous::parse_host_and_port(rest.substr(0, rest.find(','))).value();
  return rendezvous::connect_to(rendezvous::resolve(address.host, address.port).front(), Clock::now() + 20s);
}

// What a rank says of one who comes to its port without a secret tells what it asks of its peers.
TEST(Run, EncryptsBetweenRanksIfAsked) {
  for (const bool encrypt : {false, true}) {
    std::vector<std::string> options{"--env", "TRIREME_TRANSPORT=tcp", "--env", "TRIREME_LOG=info"};
    if (encrypt) options.emplace_back("--encrypt");
    const Ran hello = run_ranks(2, fmt::format("exec '{}'", TRIREME_HELLO), options);
    EXPECT_EQ(hello.status, 0) << hello.err;
    Started started(launch(2, fmt::format("exec '{}'", TRIREME_FAULT), options));
    ASSERT_TRUE(comes_true([&] { return are_at_work(2, started.err()); })) << started.err();
    for (const int rank : {0, 1}) {
      const auto stranger = connect_to_rank(rank, started.err());
      const transport::wire::Hello words;
      ASSERT_EQ(::send(stranger.get(), &words, sizeof words, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof words));
      EXPECT_TRUE(comes_true([&] {
        return contains(started.err(), fmt::format("came to rank {}, but it has no secret, and this rank a secret, {}:",
                                                   rank, encrypt ? "and encrypts" : "and does not encrypt"));
      })) << started.err();
    }
    started.signal(SIGTERM);
    EXPECT_EQ(started.wait(), 128 + SIGTERM) << started.err();
  }
}

// Rank 1 is in its own code for good: its system alone would let thousands in, and none out again. The others are in an
// operation.
TEST(Run, RanksThatComputeTurnStrangersAway) {
  Started started(launch(3, fmt::format("exec '{}' --stray 1 --after 1s", TRIREME_FAULT),
                         {"--env", "TRIREME_TRANSPORT=tcp", "--env", "TRIREME_LOG=info"}));
  ASSERT_TRUE(comes_true([&] { return are_at_work(3, started.err()); })) << started.err();
  const auto early = connect_to_rank(1, started.err());
  ASSERT_TRUE(comes_true([&] { return contains(started.out(), "[1] now: stray"); })) << started.err();
  const auto is_dropped = [](const rendezvous::Descriptor& stranger) {
    char byte = 0;
    return rendezvous::wait_for(stranger, POLLIN, Clock::now() + 20s) &&
           ::recv(stranger.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  };
  for (const int rank : {0, 1, 2}) {
    const auto loud = connect_to_rank(rank, started.err());
    ::send(loud.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
    EXPECT_TRUE(is_dropped(loud)) << rank;
    EXPECT_TRUE(comes_true([&] {
      return contains(started.err(), fmt::format("came to rank {}, but what it said is no hello of Trireme", rank));
    })) << started.err();
  }
  EXPECT_TRUE(is_dropped(early)) << "it had come before";
  constexpr int kMany = 600;  // more than wait at the door at once
  std::vector<rendezvous::Descriptor> silent;
  for (int i = 0; i < kMany; ++i) silent.push_back(connect_to_rank(1, started.err()));
  for (const auto& stranger : silent) ASSERT_TRUE(is_dropped(stranger));
  EXPECT_TRUE(contains(started.err(), "there are too many at once that have not said who they are")) << started.err();
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 128 + SIGTERM) << started.err();
}

// A stranger is told of, but not by those who bring ranks together.
TEST(Run, LetsRanksMeetThoughNobodyReadsOfStrangers) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const rendezvous::Descriptor reader(ends[0]);
  const rendezvous::Descriptor writer(ends[1]);
  ::fcntl(writer.get(), F_SETFL, O_NONBLOCK);
  while (::write(writer.get(), "x", 1) == 1) continue;
  ::fcntl(writer.get(), F_SETFL, 0);
  const TemporaryFolder folder;
  const std::string rank = fmt::format("echo $TRIREME_RENDEZVOUS; while [ ! -e '{}' ]; do sleep 0.05; done; exec '{}'",
                                       folder / "go", TRIREME_HELLO);
  Started started({"/bin/bash", "-c", fmt::format("exec \"$@\" 2>&{}", writer.get()), "-", TRIREME_PROGRAM, "run", "-n",
                   "2", "--timeout", "60s", "/bin/sh", "-c", rank});
  ASSERT_TRUE(comes_true([&] { return sorted_lines(started.out()).size() == 2; }));
  const auto port = rendezvous::parse_host_and_port(sorted_lines(started.out())[0].substr(4))->port;
  const auto stranger = rendezvous::connect_to(rendezvous::resolve("127.0.0.1", port).front(), Clock::now() + 20s);
  ::send(stranger.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
  EXPECT_TRUE(rendezvous::wait_for(stranger, POLLIN, Clock::now() + 20s)) << "it is told that it is one";
  folder.write("go", "");
  EXPECT_TRUE(comes_true([&] {
    const std::string out = started.out();
    return contains(out, "[0] rank 0 of 2: the sum") && contains(out, "[1] rank 1 of 2: the sum");
  })) << started.out();
  std::array<char, 65536> unread{};
  ASSERT_GT(::read(reader.get(), unread.data(), unread.size()), 0);
  EXPECT_EQ(started.wait(), 0);
}

TEST(RunRefuses, WhatCantBeStarted) {
  const TemporaryFolder folder;
  const std::string file = folder.write("my-program", "no program");
  const auto try_to_run = [](const std::string& program) {
    return run({TRIREME_PROGRAM, "run", "-n", "3", program, "argument"});
  };
  const Ran missing = try_to_run("no-such-program");
  EXPECT_EQ(missing.status, 127);
  EXPECT_EQ(missing.err,
            "trireme run: no-such-program can't be started: No such file or directory; it was looked for in PATH: give "
            "./no-such-program for one in this folder\n");
  EXPECT_EQ(try_to_run("./no-such-program").status, 127);
  const Ran forbidden = try_to_run(file);
  EXPECT_EQ(forbidden.status, 126);
  EXPECT_TRUE(contains(forbidden.err, "my-program can't be started: Permission denied")) << forbidden.err;
  EXPECT_EQ(try_to_run(folder / ".").status, 126);
  const Ran hint = run({"/bin/sh", "-c", R"(cd "$0" && exec "$1" run -n 2 my-program)", folder / ".", TRIREME_PROGRAM});
  EXPECT_EQ(hint.status, 127);
  EXPECT_TRUE(contains(hint.err, "did you mean './my-program'?")) << hint.err;
}

TEST(RunRefuses, WrongUse) {
  const auto refuses = [](std::vector<std::string> arguments, const std::string& word) {
    arguments.insert(arguments.begin(), {TRIREME_PROGRAM, "run"});
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.status, 2) << word << ran.err;
    EXPECT_EQ(sorted_lines(ran.err).size(), 1U) << ran.err;
    EXPECT_TRUE(contains(ran.err, word)) << word << ": " << ran.err;
    EXPECT_EQ(ran.out, "");
  };
  refuses({"-n", "0", "true"}, "-n 0");
  refuses({"-n", "-3", "true"}, "-n -3");
  refuses({"-n", "1000000", "true"}, "-n 1000000");
  refuses({"-n", "two", "true"}, "two");
  refuses({"-n", "2", "--timeout", "0s", "true"}, "--timeout 0s");
  refuses({"true"}, "--ranks");
  refuses({"-n", "2"}, "give a program");
  refuses({"-n", "2", "--pin", "true"}, "--pin");
  refuses({"-n", "2", "--grace", "5", "true"}, "5");
  refuses({"-n", "2", "--grace", "-5s", "true"}, "-5s");
  refuses({"-n", "2", "--timeout", "soon", "true"}, "soon");
  // What the launcher has to know as well, or ranks would not get it.
  for (const std::string value : {"", "=1", "=0"}) {
    refuses({"-n", "2", "--env", "TRIREME_ENCRYPT" + value, "true"},
            "run: --env TRIREME_ENCRYPT: the launcher and all");
  }
  for (const std::string name : {"TRIREME_SECRET", "TRIREME_SECRET_FILE"}) {
    for (const std::string value : {"", "=sixteen letters or more"}) {
      refuses({"-n", "2", "--env", name + value, "true"},
              fmt::format("run: --env {}: the launcher needs it too", name));
    }
  }
  for (const std::string name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "TRIREME_RENDEZVOUS"}) {
    refuses({"-n", "2", "--env", name + "=1", "true"},
            fmt::format("run: --env {}: 'trireme run' sets it itself", name));
  }
  refuses({"--rank", "2", "true"}, "no option is called '--rank'");
  const Ran help = run({TRIREME_PROGRAM, "run", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(contains(help.out, "trireme run -n 4 ./program"));
  EXPECT_TRUE(contains(help.out, "PROGRAM [ARGUMENTS...]"));
}

TEST(Run, NeedsNoProcessorWhileItWaits) {
  Started started(launch(2, "exec sleep 1.5"));
  EXPECT_EQ(started.wait(), 0);
  EXPECT_LT(started.processor_time(), 500ms);
}

}  // namespace
}  // namespace trireme
