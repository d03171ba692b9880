// Notices: one rank's port, as the others of its host find it.
#include "rendezvous/notice.h"

#include "rendezvous/client.h"
#include "rendezvous/server.h"
#include "support/run.h"
#include "support/throws.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

namespace trireme::rendezvous {
namespace {

using namespace std::chrono_literals;

TEST(Notice, IsThereForAsLongAsItsOwner) {
  const TemporaryFolder folder;
  const std::string path = folder / "notice";
  EXPECT_FALSE(read_notice(path).has_value());
  {
    const Notice notice(path, {4711});
    EXPECT_EQ(read_notice(path)->port, 4711);
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U);
    const std::string message = test::usage_error([&] { Notice(path, {4712}); });
    EXPECT_NE(message.find("rank 0 already"), std::string::npos) << message;
    EXPECT_EQ(read_notice(path)->port, 4711);
  }
  EXPECT_TRUE(folder.empty());
}

TEST(Notice, OfTheDeadIsNotBelieved) {
  const TemporaryFolder folder;
  const std::string path = folder.write("notice", "4711\n");
  EXPECT_FALSE(read_notice(path).has_value());
  const Notice notice(path, {4712});
  EXPECT_EQ(read_notice(path)->port, 4712);
}

TEST(Notice, OfTheDeadIsTakenAway) {
  const TemporaryFolder folder;
  const std::string stale = folder.write("notice", "4711\n");
  EXPECT_FALSE(read_notice(stale).has_value());
  EXPECT_TRUE(folder.empty());
  // A new one takes those of other jobs away, if they are this user's, nobody holds them and they are not just being
  // made.
  const std::string mine = fmt::format("trireme-{}-", ::getuid());
  const std::string old = folder.write(mine + "old", "1\n");
  const std::string young = folder.write(mine + "young", "2\n");
  const std::string others = folder.write("trireme-other", "3\n");
  const Notice held(folder / (mine + "held"), {4});
  const timespec long_ago[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  for (const std::string& path : {old, others, folder / (mine + "held")}) {
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), long_ago, 0), 0);
  }
  const Notice notice(folder / (mine + "new"), {5});
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(young));
  EXPECT_TRUE(std::filesystem::exists(others));
  EXPECT_EQ(read_notice(folder / (mine + "held"))->port, 4);
}

// While the others meet there; nobody is left to do it but they.
TEST(Notice, OfAServerThatWasKilledIsTakenAway) {
  const TemporaryFolder folder;
  const Place place{.rank = 1, .ranks = 3, .host = "127.0.0.1", .notice = folder / "notice"};
  const pid_t rank_0 = ::fork();
  if (rank_0 == 0) {
    const Server server("127.0.0.1", 0, 3);
    const Notice notice(folder / "notice", {server.port()});
    std::this_thread::sleep_for(60s);
    ::_exit(0);
  }
  std::thread killer;
  {
    Client client(place, 20s);
    killer = std::thread([&] {
      std::this_thread::sleep_for(50ms);
      ::kill(rank_0, SIGKILL);
    });
    EXPECT_THROW(client.exchange("", Clock::now() + 20s), PeerError);
  }
  killer.join();
  ::waitpid(rank_0, nullptr, 0);
  EXPECT_TRUE(folder.empty());
}

// Others may put what they like where a notice is looked for. To open this would wait for somebody who writes to it.
TEST(Notice, ThatIsNoFileIsNotWaitedFor) {
  const TemporaryFolder folder;
  const std::string path = folder / "notice";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const std::string& message :
       {test::usage_error([&] { read_notice(path); }), test::usage_error([&] { Notice(path, {4711}); }),
        test::usage_error([&] { Client({.rank = 1, .ranks = 2, .host = "127.0.0.1", .notice = path}, 20s); })}) {
    EXPECT_NE(message.find(path + " is no file, so it is not believed"), std::string::npos) << message;
  }
}

TEST(Notice, CantBeWrittenWhereThereIsNoFolder) { EXPECT_THROW(Notice("/no/such/folder/notice", {1}), SystemError); }

TEST(Notice, HasANameOfItsOwnForEachJob) {
  EXPECT_EQ(notice_path("job-1"), notice_path("job-1"));
  EXPECT_NE(notice_path("job-1"), notice_path("job-2"));
  EXPECT_NE(notice_path("a/b"), notice_path("a_b"));
  const std::string name = notice_path("../" + std::string(5000, 'x'));
  EXPECT_LT(name.size(), 250U);
  EXPECT_EQ(name.find("/../"), std::string::npos);
  EXPECT_EQ(name_of_starter("NO_SUCH_VARIABLE"), name_of_starter("NO_SUCH_VARIABLE"));
}

TEST(Notice, HasTheSecretThatWasMadeForTheJob) {
  const TemporaryFolder folder;
  const Secret secret = Secret::make();
  const Notice notice(folder / "notice", {4711, secret});
  EXPECT_EQ(read_notice(folder / "notice")->port, 4711);
  EXPECT_EQ(read_notice(folder / "notice")->secret.text(), secret.text());
  struct stat info {};
  ASSERT_EQ(::stat((folder / "notice").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

// One that a rank has been given goes before, and is proved.
TEST(Notice, IsWhereRanksFindTheirSecret) {
  const TemporaryFolder folder;
  const Secret secret = Secret::make();
  const auto place = [&](int rank) {
    return Place{.rank = rank, .ranks = 2, .host = "127.0.0.1", .serve = rank == 0, .notice = folder / "notice"};
  };
  const auto server = serve(place(0), {.secret = secret});
  const Notice notice(folder / "notice", {server->port(), secret});
  const std::string refused =
      test::usage_error([&] { Client(place(1), 20s, {.secret = Secret("another of sixteen or more")}); });
  EXPECT_NE(refused.find("another secret"), std::string::npos) << refused;
  Client one(place(1), 20s, {.encrypt = false});
  EXPECT_EQ(one.guard().secret.text(), secret.text());
  Client zero(place(0), 20s, {.secret = secret});
  std::thread thread([&] { one.exchange("one", Clock::now() + 20s); });
  EXPECT_EQ(zero.exchange("zero", Clock::now() + 20s), (std::vector<std::string>{"zero", "one"}));
  thread.join();
}

TEST(Notice, BringsRanksTogether) {
  const TemporaryFolder folder;
  const auto place = [&](int rank) {
    return Place{.rank = rank, .ranks = 2, .host = "127.0.0.1", .serve = rank == 0, .notice = folder / "notice"};
  };
  std::vector<std::string> other;
  std::thread thread([&] {  // comes long before rank 0
    Client client(place(1), 20s);
    other = client.exchange("one", Clock::now() + 20s);
  });
  std::this_thread::sleep_for(100ms);
  const auto server = serve(place(0));
  const Notice notice(folder / "notice", {server->port()});
  Client client(place(0), 20s);
  EXPECT_EQ(client.exchange("zero", Clock::now() + 20s), (std::vector<std::string>{"zero", "one"}));
  thread.join();
  EXPECT_EQ(other, (std::vector<std::string>{"zero", "one"}));
}

TEST(Notice, ThatNeverComesIsNamed) {
  const TemporaryFolder folder;
  try {
    Client({.rank = 1, .ranks = 2, .host = "127.0.0.1", .notice = folder / "notice"}, 100ms);
    FAIL();
  } catch (const TimeoutError& error) {
    EXPECT_NE(std::string(error.what()).find(folder / "notice"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("MASTER_ADDR"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme::rendezvous
