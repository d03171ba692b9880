// What a rank of the same host may say or hand over that is wrong: it is told of as such, and nobody crashes or waits.
#include "transport/host.h"

#include "transport/inproc.h"
#include "transport/party.h"
#include "transport/shm.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace trireme::test {
namespace {

using namespace std::chrono_literals;
using transport::RecordInfo;
using transport::RecordKind;

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

// Rank 0 writes records by hand into its ring to rank 1.
class HostLiar : public ::testing::Test {
 protected:
  void say(RecordInfo info, const std::vector<std::array<std::uint64_t, 2>>& places = {}) {
    transport::RingWriter writer(liar_->peers().front().to);
    std::byte* const payload = writer.reserve(places.size() * sizeof places[0]);
    ASSERT_NE(payload, nullptr);
    if (info.places == 0) info.places = static_cast<std::uint16_t>(places.size());
    if (!places.empty()) std::memcpy(payload, places.data(), places.size() * sizeof places[0]);
    writer.publish(info);
    host_.progress();
  }

  void expect_garbled(const std::string& why) {
    EXPECT_EQ(party_.garblers, std::vector<int>{0});
    ASSERT_EQ(party_.losses.size(), 1);
    EXPECT_EQ(party_.losses[0].second, why);
    EXPECT_TRUE(party_.arrivals.empty());
  }

  transport::Inproc shared_{2};
  std::unique_ptr<transport::HostMemory> liar_ = shared_.memory(0);
  Party party_{1};
  transport::Host host_{2, shared_.memory(1), party_};
};

TEST_F(HostLiar, SendsARecordOfNoKind) {
  say({.kind = static_cast<RecordKind>(77)});
  expect_garbled("sent a record that makes no sense");
}

TEST_F(HostLiar, SendsARecordThatIsTooLong) {
  say({.kind = RecordKind::message, .bytes = kMost});
  expect_garbled("sent a record that is longer than any");
}

TEST_F(HostLiar, ListsMorePlacesThanARecordHolds) {
  say({.kind = RecordKind::lent, .places = 65535, .bytes = 100});
  expect_garbled("sent a record that is longer than any");
}

// It would be read from whatever lies behind.
TEST_F(HostLiar, SendsARecordThatGoesOnBehindTheRing) {
  transport::RingWriter writer(liar_->peers().front().to);
  party_.checks = false;
  constexpr std::size_t kStep = 16384;  // of 64 that make a lap
  for (std::size_t end = kStep; end < transport::ByteRing::kBytes; end += kStep) {
    ASSERT_NE(writer.reserve(kStep - transport::kLine), nullptr);
    writer.publish({.kind = RecordKind::message, .bytes = kStep - transport::kLine});
    host_.progress();
  }
  ASSERT_TRUE(party_.losses.empty());
  party_.arrivals.clear();
  ASSERT_NE(writer.reserve(0), nullptr);
  writer.publish({.kind = RecordKind::message, .bytes = kStep});
  host_.progress();
  expect_garbled("sent a record that is longer than any");
}

TEST_F(HostLiar, LendsWhatIsNotItsOwn) {
  say({.kind = RecordKind::lent, .bytes = 100, .offset = kMost - 10});
  expect_garbled("lent memory that is not its own");
}

TEST_F(HostLiar, LendsMoreThanThereIs) {
  say({.kind = RecordKind::offered, .bytes = kMost, .offset = 1});
  expect_garbled("lent memory that is not its own");
}

TEST_F(HostLiar, LendsSeveralPiecesOfWhichOneIsNotItsOwn) {
  say({.kind = RecordKind::lent, .bytes = 140}, {{0, 40}, {kMost - 10, 100}});
  expect_garbled("lent memory that is not its own");
}

TEST_F(HostLiar, LendsAnotherSizeThanItSays) {
  say({.kind = RecordKind::lent, .bytes = 100}, {{0, 40}, {40, 50}});
  expect_garbled("lent memory of another size than it says");
}

TEST_F(HostLiar, GivesBackWhatItWasNotLent) {
  say({.kind = RecordKind::released, .token = 5});
  expect_garbled("gave back what was not lent to it");
}

// What rank 0 of 2 finds of a rank 1 that announces this.
int neighbours_of_one_that(const std::string& announces, std::chrono::milliseconds patience = 20s) {
  const transport::Exchange exchange = [&](const std::string& mine) {
    return std::vector<std::string>{mine, announces};
  };
  return static_cast<int>(transport::make_shm(0, 2, exchange, -1, patience)->peers().size());
}

// A socket as that by which ranks hand over their memory.
class Handing {
 public:
  Handing() : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data(), name_.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
  }
  ~Handing() { ::close(socket_); }
  Handing(const Handing&) = delete;
  Handing& operator=(const Handing&) = delete;

  const std::string& name() const { return name_; }

  /// To the first who comes.
  void hand_over(int descriptor) const {
    const int guest = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    const std::array<int, 2> both = {descriptor, descriptor};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof both)> control = {};
    char byte = 0;
    iovec part{.iov_base = &byte, .iov_len = 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof both);
    std::memcpy(CMSG_DATA(header), both.data(), sizeof both);
    EXPECT_EQ(::sendmsg(guest, &message, MSG_NOSIGNAL), 1);
    ::close(guest);
  }

 private:
  std::string name_ = "trireme-test-" + std::to_string(::getpid());
  int socket_;
};

TEST(Shm, DoesNotWaitForWhoWasStopped) {
  const Handing silent;
  EXPECT_EQ(neighbours_of_one_that(silent.name() + " 17", 200ms), 0);
}

TEST(Shm, DoesNotTouchMemoryThatIsTooSmall) {
  const Handing handing;
  const int memory = ::memfd_create("small", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(memory, 4096), 0);
  std::thread giver([&] { handing.hand_over(memory); });
  EXPECT_EQ(neighbours_of_one_that(handing.name() + " 17"), 0);
  giver.join();
  ::close(memory);
}

TEST(Shm, RefusesAnAnnouncementThatMakesNoSense) {
  EXPECT_THROW(neighbours_of_one_that("trireme-without-a-number"), ProtocolError);
}

}  // namespace
}  // namespace trireme::test
