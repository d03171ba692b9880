// Ranks on several hosts: what they are told, their output, and what hosts can't do.
#include "cli/launch.h"
#include "rendezvous/server.h"
#include "rendezvous/socket.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace trireme {
namespace {

TEST(Hosts, ShareTheRanks) {
  const Agents agents;
  const Ran ran = run(
      launch("a:2,b:1,c:3", agents.plain(), "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE; echo error >&2"));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 0/6 0/2", "[1] 1/6 1/2", "[2] 2/6 0/1", "[3] 3/6 0/3",
                                                             "[4] 4/6 1/3", "[5] 5/6 2/3"}));
  EXPECT_EQ(sorted_lines(ran.err).size(), 6U) << ran.err;
  EXPECT_EQ(sorted_lines(ran.err)[0], "[0] error");
}

// Hosts that look for the launcher are no strangers to it.
TEST(Hosts, OfACleanRunSayNothing) {
  const Agents agents;
  for (int i = 0; i < 10; ++i) {
    const Ran ran = run(launch("a:1,b:1,c:1", agents.plain(), "true", {"--encrypt"}));
    EXPECT_EQ(ran.status, 0);
    EXPECT_EQ(ran.err, "");
  }
}

TEST(Hosts, KeepStrangersOut) {
  const Agents agents;
  const PidFiles pids;
  Started started(
      launch("a:1,b:1", agents.plain(),
             "trap 'exit 0' TERM; echo $TRIREME_RENDEZVOUS;" + pids.script() + "while :; do sleep 0.05; done"));
  pids.wait_for(2);
  ASSERT_TRUE(comes_true([&] { return sorted_lines(started.out()).size() == 2; }));
  const auto port = rendezvous::parse_host_and_port(sorted_lines(started.out())[0].substr(4))->port;
  const auto stranger = rendezvous::connect_to(rendezvous::resolve("127.0.0.1", port).front(), Clock::now() + 20s);
  ::send(stranger.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
  EXPECT_TRUE(comes_true([&] {
    return contains(started.err(),
                    "trireme run: a stranger was turned away (1 so far): 127.0.0.1 came to trireme run (");
  })) << started.err();
  started.signal(SIGTERM);
  EXPECT_EQ(started.wait(), 0) << started.err();
  EXPECT_FALSE(contains(started.err(), "(2 so far)")) << started.err();
}

TEST(Hosts, ProveASecretFromAFile) {
  const Agents agents;
  const std::string file = agents.write("secret", "sixteen letters or more\n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  const auto hello = [&](const std::string& agent, std::string name = {}) {
    if (name.empty()) name = file;
    return run({"/usr/bin/env", "--chdir", std::filesystem::path(file).parent_path(), "TRIREME_SECRET_FILE=" + name,
                TRIREME_PROGRAM, "run", "--hosts", "b:2", "--agent", agent, "--timeout", "60s", TRIREME_HELLO});
  };
  const Ran there = hello(agents.plain());
  EXPECT_EQ(there.status, 0) << there.err;
  // An ssh begins in another folder than that in which ranks run.
  const Ran relative = hello(agents.script("elsewhere", R"(shift; cd /; exec "$@")"), "secret");
  EXPECT_EQ(relative.status, 0) << relative.err;
  const Ran absent = hello(agents.with_trouble("rm " + file));
  EXPECT_EQ(absent.status, 2);
  EXPECT_TRUE(contains(absent.err, fmt::format("host b: TRIREME_SECRET_FILE is '{}', which can't be read", file)))
      << absent.err;
}

TEST(Hosts, AreFilledInTheirOrder) {
  const Agents agents;
  const Ran ran = run(launch("a:2,b:2", agents.plain(), "echo $LOCAL_RANK/$LOCAL_WORLD_SIZE", {"-n", "3"}));
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 0/2", "[1] 1/2", "[2] 0/1"}));
  // This machine itself needs no agent, and may be one of several.
  const Ran local = run({TRIREME_PROGRAM, "run", "--hosts", "localhost:2", "/bin/sh", "-c", "echo $MASTER_ADDR"});
  EXPECT_EQ(sorted_lines(local.out), (std::vector<std::string>{"[0] 127.0.0.1", "[1] 127.0.0.1"})) << local.err;
}

TEST(Hosts, MeetAndAddUp) {
  const Agents agents;
  const Ran ran =
      run({TRIREME_PROGRAM, "run", "--hosts", "a:2,b:2", "--agent", agents.plain(), "--timeout", "60s", TRIREME_HELLO});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(sorted_lines(ran.out).size(), 4U) << ran.out;
  for (const std::string& line : sorted_lines(ran.out)) EXPECT_TRUE(contains(line, "of 4: the sum")) << line;
}

TEST(Hosts, PassOnOutputAsItIs) {
  const Agents agents;
  const Ran plain = run(launch("a:1", agents.plain(), R"(printf 'a\nb')", {"--no-prefix"}));
  EXPECT_EQ(plain.out, "a\nb") << plain.err;
  const Ran much = run(launch("a:1,b:1", agents.plain(), R"(head -c 3000000 /dev/zero | tr '\0' $RANK)"));
  const auto lines = sorted_lines(much.out);
  ASSERT_EQ(lines.size(), 2U) << much.err;
  EXPECT_EQ(lines[1], "[1] " + std::string(3'000'000, '1'));
  const Ran bytes = run(launch("a:1", agents.plain(), R"(printf '\377\000\201')", {"--no-prefix"}));
  EXPECT_EQ(bytes.out, std::string("\377\000\201", 3));
}

TEST(Hosts, GetTheirVariables) {
  const Agents agents;
  const std::string agent = agents.script("clean", R"(shift; exec env -i PATH="$PATH" "$@")");
  ::setenv("TRIREME_TEST", "1", 1);
  ::setenv("OTHER_TEST", "2", 1);
  const std::string show = "echo $TRIREME_TEST $OTHER_TEST $THIRD_TEST";
  const Ran ran = run(launch("a:1", agent, show, {"--env", "THIRD_TEST=3 4"}));
  const Ran named = run(launch("a:1", agent, show, {"--env", "OTHER_TEST"}));
  ::unsetenv("TRIREME_TEST");
  ::unsetenv("OTHER_TEST");
  EXPECT_EQ(ran.out, "[0] 1 3 4\n") << ran.err;
  EXPECT_EQ(named.out, "[0] 1 2\n") << named.err;
  EXPECT_TRUE(contains(run(launch("a:1", agent, show, {"--env", "NOT_SET"})).err, "--env NOT_SET"));
  EXPECT_TRUE(contains(run(launch("a:1", agent, show, {"--env", "=3"})).err, "--env '=3': a variable has a name"));
}

// What the launcher says goes before what its own environment says.
TEST(Hosts, AreToldByTheirOwnLauncher) {
  const Ran encrypted = run({"/usr/bin/env", "TRIREME_ENCRYPT=0", TRIREME_PROGRAM, "run", "--hosts", "localhost:2",
                             "--encrypt", "--timeout", "60s", TRIREME_HELLO});
  EXPECT_EQ(encrypted.status, 0) << encrypted.err;
  // Ranks of a launcher that is a rank itself are on its board, not on that of the outer one.
  const Ran nested = run({TRIREME_PROGRAM, "run", "-n", "2", TRIREME_PROGRAM, "run", "--hosts", "localhost:2",
                          "--report", "--timeout", "60s", TRIREME_HELLO});
  EXPECT_EQ(nested.status, 0) << nested.err;
  EXPECT_FALSE(contains(nested.err, "it called no collective")) << nested.err;
  EXPECT_TRUE(contains(nested.err, "allreduce")) << nested.err;
}

TEST(Hosts, GiveStandardInputToRankZero) {
  const Agents agents;
  const std::string command =
      fmt::format(R"("{}" run --hosts a:1,b:1 --agent {} --no-prefix sh -c 'echo $RANK $(cksum)')", TRIREME_PROGRAM,
                  agents.plain());
  const std::string input = R"(head -c 1000000 /dev/zero | tr '\0' x)";
  const std::string expected = run({"/bin/sh", "-c", input + " | cksum"}).out;
  const std::string nothing = run({"/bin/sh", "-c", "cksum < /dev/null"}).out;
  const Ran ran = run({"/bin/sh", "-c", input + " | " + command});
  EXPECT_EQ(sorted_lines(ran.out), sorted_lines("0 " + expected + "1 " + nothing)) << ran.err;
  // Nobody has to read it.
  const std::string unread = fmt::format(R"("{}" run --hosts a:1 --agent {} true)", TRIREME_PROGRAM, agents.plain());
  EXPECT_EQ(run({"/bin/sh", "-c", "yes | " + unread}).status, 0);
}

TEST(Hosts, AreReachedBySsh) {
  const Agents agents;
  // As ssh does, it gives its words to a shell.
  const std::string ssh = agents.script("ssh", R"(while [ "$1" != node-1 ]; do shift; done; shift; eval "$*")");
  const std::string folder = std::filesystem::path(ssh).parent_path();
  const Ran ran = run({"/usr/bin/env", fmt::format("PATH={}:/usr/bin:/bin", folder), TRIREME_PROGRAM, "run", "--hosts",
                       "node-1:2", "/bin/sh", "-c", "echo $RANK"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 0", "[1] 1"}));
}

struct Trouble {
  const char* about;
  std::string special;
  int status;
  std::vector<std::string> words;
};

class HostTrouble : public ::testing::TestWithParam<Trouble> {};

TEST_P(HostTrouble, IsNamedAndNothingIsStartedAnywhere) {
  const Agents agents;
  const TemporaryFolder folder;
  const Ran ran =
      run(launch("a:2,b:2", agents.with_trouble(GetParam().special), fmt::format("touch {}/$RANK", folder / ".")));
  EXPECT_EQ(ran.status, GetParam().status) << ran.err;
  for (const std::string& word : GetParam().words) EXPECT_TRUE(contains(ran.err, word)) << word << ": " << ran.err;
  EXPECT_TRUE(folder.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, HostTrouble,
    ::testing::Values(Trouble{"AHostThatCantBeReached",
                              "echo no route to b >&2; exit 255",
                              255,
                              {"host b: no route to b", "status 255", "by hand"}},
                      Trouble{"NoTriremeThere", "exit 127", 127, {"host b", "--agent-program"}},
                      Trouble{"AnAgentOfAnotherVersion",
                              "echo trireme host-agent 999 of Trireme 9.9; sleep 1; exit 0",
                              1,
                              {"host b: another version", "'trireme host-agent 999 of Trireme 9.9'",
                               "this is 'trireme host-agent 6 of"}},
                      Trouble{"AnAgentThatMakesNoSense",
                              "echo trireme host-agent 6 of a test; head -c 1000 /dev/zero | tr '\\0' x; sleep 1",
                              1,
                              {"host b", "no sense"}},
                      Trouble{"NoEndOfWhatIsInside",
                              R"(echo trireme host-agent 6 of a test; printf '\000\000\000\001'; )"
                              R"(head -c 16777216 /dev/zero | tr '\0' '\201'; sleep 1)",
                              1,
                              {"host b", "no sense"}},
                      Trouble{"RanksOfOthers",
                              "echo trireme host-agent 6 of a test; printf "
                              "'\\020\\000\\000\\000\\241eended\\201\\205\\031\\377\\377\\001\\365\\000\\364'; sleep 1",
                              1,
                              {"host b", "rank 65535, which does not run there"}},
                      Trouble{"AnAgentThatIsGoneAgain",
                              "echo trireme host-agent 6 of a test; exit 0",
                              1,
                              {"host b: it is lost", "status 0 before ranks were started there"}},
                      Trouble{
                          "NoEndOfALine", "head -c 2000000 /dev/zero | tr '\\0' x; sleep 1", 1, {"host b", "no end"}}),
    [](const auto& test) { return std::string(test.param.about); });

// Whoever mends one of them wants to know of the others too; one that says nothing is not waited for.
TEST(HostsRefuse, AllThatCantBeReachedAreNamed) {
  const Agents agents;
  const std::string agent = agents.script(
      "unreachable",
      R"(host=$1; shift; case $host in b) exit 255 ;; c) sleep 0.3; exit 255 ;; d) exec sleep 20 ;; esac; exec "$@")");
  for (const char* const hosts : {"a:1,b:1,c:1", "a:1,b:1,c:1,d:1"}) {
    const auto begin = Clock::now();
    const Ran ran = run(launch(hosts, agent, "true"));
    EXPECT_EQ(ran.status, 255) << ran.err;
    for (const char* const host : {"host b: ", "host c: "}) EXPECT_EQ(lines_with(ran.err, host).size(), 1U) << ran.err;
    EXPECT_LT(seconds_since(begin), 15);
  }
  // The time is over before it is given up on the host that says nothing.
  const Ran late = run(launch("a:1,b:1,d:1", agent, "true", {"--timeout", "1s"}));
  EXPECT_EQ(late.status, 255) << late.err;
  EXPECT_FALSE(contains(late.err, "is over")) << late.err;
}

TEST(HostsRefuse, AnAgentThatIsNotThere) {
  const Ran ran = run(launch("a:1,b:1", "./nonesuch", "true"));
  EXPECT_EQ(ran.status, 127) << ran.err;
  for (const char* const host : {"host a: ", "host b: "}) EXPECT_EQ(lines_with(ran.err, host).size(), 1U) << ran.err;
}

TEST(HostsRefuse, AProgramThatOneOfThemDoesNotHave) {
  const Agents agents;
  const PidFiles pids;
  const std::string program =
      agents.script("program", "trap '' TERM;" + pids.script() + "while :; do sleep 0.05; done");
  const std::string folder = std::filesystem::path(program).parent_path();
  // On host b the path has nothing of the kind.
  const std::string agent = agents.with_trouble("export PATH=/usr/bin:/bin");
  const Ran ran = run({"/usr/bin/env", fmt::format("PATH={}:/usr/bin:/bin", folder), TRIREME_PROGRAM, "run", "--hosts",
                       "a:2,b:2", "--agent", agent, "--grace", "2s", "program"});
  EXPECT_EQ(ran.status, 127);
  EXPECT_TRUE(
      contains(ran.err, "host b: program can't be started: No such file or directory; it has to be on each host"))
      << ran.err;
  EXPECT_EQ(lines_with(ran.err, "*    2  none on b ").size(), 1U) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "*    3  none on b ").size(), 1U) << ran.err;
  EXPECT_EQ(lines_with(ran.err, " could not be started ").size(), 2U) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "*  ").size(), 2U) << ran.err;
  EXPECT_FALSE(contains(ran.err, "lost")) << ran.err;
  expect_gone(pids.wait_for(2));  // those of host a, which had begun
}

void expect_refused(std::vector<std::string> options, const std::string& word) {
  options.insert(options.begin(), {TRIREME_PROGRAM, "run"});
  options.emplace_back("true");
  const Ran ran = run(options);
  EXPECT_EQ(ran.status, 2) << word << ran.err;
  EXPECT_TRUE(contains(ran.err, word)) << word << ": " << ran.err;
}

TEST(HostsRefuse, WrongUse) {
  expect_refused({"--hosts", "a:0"}, "'a:0'");
  expect_refused({"--hosts", "a:2,"}, "names nothing");
  expect_refused({"--hosts", "a:two"}, "'a:two'");
  expect_refused({"--hosts", "-oProxyCommand=x:1"}, "--hosts");
  expect_refused({"--hosts", "a:2,b,a"}, "names a twice");
  expect_refused({"--hosts", "a", "--hostfile", "f"}, "not both");
  expect_refused({"-n", "2", "--agent", "ssh"}, "--hosts");
  expect_refused({"--hosts", "a", "--ports", "5"}, "20000-20100");
  expect_refused({"--hosts", "a", "--interface", "nonesuch0"}, "nonesuch0");
  expect_refused({"--hosts", "a", "--interface", "10.0.0.0/99"}, "followed by / and 0 to 32");
  expect_refused({"--hosts", "a", "--agent", ""}, "--agent is empty");
}

TEST(HostsRefuse, MoreRanksThanSlots) { expect_refused({"-n", "5", "--hosts", "a:2,b:2"}, "more than the 4 ranks"); }

TEST(HostsRefuse, AHostfileWithBadLinesWhichItNames) {
  const TemporaryFolder folder;
  expect_refused({"--hostfile", folder / "none"}, "none can't be read: No such file");
  expect_refused({"--hostfile", folder / "."}, "is a folder, not a file");
  expect_refused({"--hostfile", folder.write("empty", "# nobody\n\n")}, "names no host");
  expect_refused({"--hostfile", folder.write("control", "a\nb\x1b[1m\n")}, "line 2");
  expect_refused({"--hostfile", folder.write("bracket", "[a]b]:2\n")}, "line 1");
  expect_refused({"--hostfile", folder.write("bad", "a slots=2\n\nb slots=two\n")}, "line 3");
  expect_refused({"--hostfile", folder.write("more", "a:2\nb 3\n")}, "line 2");
  expect_refused({"--hostfile", folder.write("twice", "a\nb\na # again\n")}, "line 3");
}

TEST(HostsRefuse, ASecretThatDiffersOnOneOfThem) {
  const Agents agents;
  const std::string script =
      fmt::format("[ $RANK = 1 ] && export TRIREME_SECRET=another_secret_of_these; exec '{}'", TRIREME_HELLO);
  const Ran ran = run(launch("a:1,b:1,c:1", agents.plain(), script, {"--timeout", "60s"}));
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_EQ(lines_with(ran.err, "[1] hello: ").size(), 1U) << ran.err;
  EXPECT_TRUE(contains(ran.err, "another secret than")) << ran.err;
  for (const char* const rank : {"[0] hello: rank 1 (", "[2] hello: rank 1 ("}) {
    EXPECT_EQ(lines_with(ran.err, rank).size(), 1U) << ran.err;
  }
}

TEST(Hostfile, HasAHostALine) {
  const Agents agents;
  const std::string file = agents.write("hosts", "# ours\na slots=2\n\n  b:1  # small\nc\n");
  const Ran ran = run({TRIREME_PROGRAM, "run", "--hostfile", file, "--agent", agents.plain(), "/bin/sh", "-c",
                       "echo $LOCAL_RANK/$LOCAL_WORLD_SIZE"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 0/2", "[1] 1/2", "[2] 0/1", "[3] 0/1"}));
}

TEST(Hostfile, MayBeginWithAByteOrderMark) {
  const Agents agents;
  const std::string named = agents.script("named", R"(echo "host '$1'" >&2; shift; exec "$@")");
  const Ran ran = run({TRIREME_PROGRAM, "run", "--hostfile",
                       agents.write("hosts",
                                    "\xef\xbb\xbf"
                                    "a:1\n"),
                       "--agent", named, "/bin/sh", "-c", "echo here"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "[0] here\n");
  EXPECT_TRUE(contains(ran.err, "host a: host 'a'")) << ran.err;
}

TEST(Hosts, UseThePortsThatTheyMay) {
  const Agents agents;
  const auto ports_of = [&](const std::string& range) {
    return run(launch("a:1", agents.plain(), "echo ${TRIREME_RENDEZVOUS##*:} $TRIREME_PORTS", {"--ports", range}));
  };
  const Ran ran = ports_of("21000-21999");
  EXPECT_EQ(ran.status, 0) << ran.err;
  const int port = std::stoi(ran.out.substr(4));
  EXPECT_GE(port, 21000);
  EXPECT_LE(port, 21999);
  EXPECT_TRUE(contains(ran.out, " 21000-21999\n")) << ran.out;
}

TEST(Hosts, SayThatAllPortsAreTaken) {
  const Agents agents;
  const rendezvous::Server other("", 0, 1);
  const Ran ran = run(launch("a:1", agents.plain(), "true", {"--ports", fmt::format("{0}-{0}", other.port())}));
  EXPECT_EQ(ran.status, 2);
  EXPECT_TRUE(contains(ran.err, fmt::format("all ports from {0} to {0} are in use here", other.port()))) << ran.err;
  // Several are tried one after the other.
  std::unique_ptr<rendezvous::Server> first;
  std::unique_ptr<rendezvous::Server> second;
  while (!second) {
    try {
      first = std::make_unique<rendezvous::Server>("", 0, 1);
      second = std::make_unique<rendezvous::Server>("", static_cast<std::uint16_t>(first->port() + 1), 1);
    } catch (const Error&) {  // Somebody has the next one.
    }
  }
  const std::string range = fmt::format("{}-{}", first->port(), second->port());
  const Ran two = run(launch("a:1", agents.plain(), "true", {"--ports", range}));
  EXPECT_EQ(two.status, 2);
  EXPECT_TRUE(contains(two.err, fmt::format("all ports from {} to {} are in use here: allow more (--ports)",
                                            first->port(), second->port())))
      << two.err;
  second.reset();
  EXPECT_EQ(run(launch("a:1", agents.plain(), "true", {"--ports", range})).status, 0);
  const Ran ranks = run({TRIREME_PROGRAM, "run", "-n", "2", "--timeout", "60s", "--env", "TRIREME_TRANSPORT=tcp",
                         "--env", fmt::format("TRIREME_PORTS={0}-{0}", other.port()), TRIREME_HELLO});
  EXPECT_EQ(ranks.status, 1);
  EXPECT_TRUE(contains(ranks.err, "are in use here, by ranks of this job or by others: allow more (--ports or"))
      << ranks.err;
}

}  // namespace
}  // namespace trireme
