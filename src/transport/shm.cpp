#include "transport/shm.h"

#include "base/signals.h"
#include "transport/mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <poll.h>
#include <random>
#include <span>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace trireme::transport {
namespace {

constexpr std::size_t kPage = 4096;

constexpr std::size_t round_to_page(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// Goes up when what lies in shared memory means something else. Builds that differ in it talk by TCP.
constexpr std::uint64_t kLayout = 2;

/// The start of a rank's memory. Behind it: one mark for each rank, one ring from each rank, the arena.
struct Head {
  std::atomic<std::uint64_t> secret;
  std::uint64_t layout = kLayout;
  alignas(kLine) Bell bell;
};

struct Layout {
  explicit Layout(int ranks)
      : marks(round_to_line(sizeof(Head))),
        rings(round_to_page(marks + sizeof(std::atomic<std::uint64_t>) * ranks)),
        arena(round_to_page(rings + sizeof(ByteRing) * ranks)),
        arena_bytes(transport::arena_bytes(ranks)),
        bytes(arena + arena_bytes) {}

  Head& head(std::byte* base) const { return *std::launder(reinterpret_cast<Head*>(base)); }
  std::atomic<std::uint64_t>& mark(std::byte* base, int rank) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(base + marks)[rank];
  }
  ByteRing* ring(std::byte* base, int from) const { return reinterpret_cast<ByteRing*>(base + rings) + from; }

  std::size_t marks, rings, arena, arena_bytes, bytes;
};

class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  int take() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

[[noreturn]] void fail(const char* what) {
  throw SystemError(fmt::format("shared memory: {} failed: {}", what, std::strerror(errno)));
}

Descriptor checked(int descriptor, const char* what) {
  if (descriptor < 0) fail(what);
  return Descriptor(descriptor);
}

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;  // never 0, which is what fresh memory has
}

struct AbstractAddress {
  explicit AbstractAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address = {};
  socklen_t size = 0;
};

struct Handed {
  Descriptor memory{};
  Descriptor event{};
  Descriptor gift{};
};

/// A message of one byte, with room for the descriptors that go with it: two, or three with a gift.
struct Parcel {
  Parcel() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  Parcel(const Parcel&) = delete;
  Parcel& operator=(const Parcel&) = delete;

  std::array<int, 4> descriptors = {-1, -1, -1, -1};  // CMSG_SPACE has room for a fourth, which would be there as well
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptors)> control = {};
  char byte = 0;
  iovec part{.iov_base = &byte, .iov_len = 1};
  msghdr message = {};
};

bool hand_over(int socket, std::span<const int> descriptors) {
  Parcel parcel;
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  parcel.message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  return ::sendmsg(socket, &parcel.message, MSG_NOSIGNAL) == 1;
}

// Nothing, if the other side ends or is not heard of in time.
Handed take_over(int socket) {
  Parcel parcel;
  ssize_t bytes = 0;
  do {
    bytes = ::recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes == 1) {
    if ((parcel.message.msg_flags & MSG_CTRUNC) != 0) {
      errno = EMFILE;
      fail("recvmsg");
    }
    const cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      std::memcpy(parcel.descriptors.data(), CMSG_DATA(header),
                  std::min(header->cmsg_len - CMSG_LEN(0), sizeof parcel.descriptors));
    }
  }
  Handed handed{Descriptor(parcel.descriptors[0]), Descriptor(parcel.descriptors[1]),
                Descriptor(parcel.descriptors[2])};
  const Descriptor unasked(parcel.descriptors[3]);
  return handed.event.get() < 0 || unasked.get() >= 0 ? Handed{} : std::move(handed);
}

/// Calls on this socket give up then.
void wait_at_most(int socket, std::chrono::steady_clock::time_point until) {
  using std::chrono::microseconds;
  const auto left = std::chrono::duration_cast<microseconds>(until - std::chrono::steady_clock::now());
  const auto count = std::max<microseconds::rep>(left.count(), 1000);  // 0 would be for ever
  const timeval time{.tv_sec = count / 1'000'000, .tv_usec = count % 1'000'000};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (::setsockopt(socket, SOL_SOCKET, option, &time, sizeof time) != 0) fail("setsockopt");
  }
}

/// The names of such sockets are no secret to the machine's other users, and the memory is not theirs.
bool is_same_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

/// Hands this rank's memory to whoever asks, until it is destroyed.
class Giver {
 public:
  Giver(const std::string& name, std::vector<int> descriptors)
      : descriptors_(std::move(descriptors)),
        socket_(checked(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")),
        stop_(checked(::eventfd(0, EFD_CLOEXEC), "eventfd")) {
    const AbstractAddress address(name);
    if (::bind(socket_.get(), address.get(), address.size) != 0) fail("bind");
    constexpr int kWaiting = 4096;
    if (::listen(socket_.get(), kWaiting) != 0) fail("listen");
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { serve(); });
  }

  ~Giver() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

  Giver(const Giver&) = delete;
  Giver& operator=(const Giver&) = delete;

 private:
  void serve() const {
    while (true) {
      std::array<pollfd, 2> look = {{{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
      if (::poll(look.data(), look.size(), -1) < 0 && errno != EINTR) return;
      if (look[1].revents != 0) return;
      if (look[0].revents == 0) continue;
      const Descriptor guest(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (guest.get() >= 0 && is_same_user(guest.get())) hand_over(guest.get(), descriptors_);
    }
  }

  std::vector<int> descriptors_;
  Descriptor socket_;
  Descriptor stop_;
  std::thread thread_;
};

/// Another rank's memory, if it is on this host.
struct Neighbour {
  int rank = 0;
  Mapping mapping;
  Descriptor event;
  Descriptor gift;
  Descriptor process;
};

class ShmMemory final : public HostMemory {
 public:
  ShmMemory(int rank, int ranks)
      : rank_(rank),
        layout_(ranks),
        file_(checked(::memfd_create("trireme", MFD_CLOEXEC), "memfd_create")),
        event_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
        mapping_(sized(file_.get(), layout_.bytes)),
        arena_(mapping_.data() + layout_.arena, layout_.arena_bytes, file_.get(), layout_.arena) {
    new (mapping_.data()) Head{};
    layout_.head(mapping_.data()).secret.store(secret_);
  }

  void find_neighbours(int ranks, const Exchange& exchange, int gift, std::chrono::milliseconds patience) {
    const std::string name = fmt::format("trireme-{:016x}-{}", random_number(), rank_);
    std::vector<int> descriptors{file_.get(), event_.get()};
    if (gift >= 0) descriptors.push_back(gift);
    auto giver = std::make_unique<Giver>(name, std::move(descriptors));
    const std::vector<std::string> announced = exchange(fmt::format("{} {}", name, secret_));
    std::vector<Neighbour> found;
    const auto until = std::chrono::steady_clock::now() + patience;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank != rank_) visit(rank, announced[rank], until, found);
    }
    // When this returns, all have marked the memory that they found.
    std::string seen;
    for (const Neighbour& neighbour : found) seen += fmt::format("{} ", neighbour.rank);
    exchange(seen);
    giver.reset();
    for (Neighbour& neighbour : found) {
      const std::uint64_t mark = layout_.mark(mapping_.data(), neighbour.rank).load();
      if (mark == secret_of(neighbour.rank, announced[neighbour.rank])) neighbours_.push_back(std::move(neighbour));
    }
  }

  Arena& arena() override { return arena_; }
  Visible visible() const override { return visible_in(mapping_); }
  Bell& bell() override { return layout_.head(mapping_.data()).bell; }
  int event() const override { return event_.get(); }

  std::vector<HostPeer> peers() const override {
    std::vector<HostPeer> peers;
    for (const Neighbour& neighbour : neighbours_) {
      std::byte* base = neighbour.mapping.data();
      peers.push_back({.rank = neighbour.rank,
                       .bell = &layout_.head(base).bell,
                       .event = neighbour.event.get(),
                       .process = neighbour.process.get(),
                       .to = layout_.ring(base, rank_),
                       .from = layout_.ring(mapping_.data(), neighbour.rank),
                       .visible = visible_in(neighbour.mapping)});
    }
    return peers;
  }

  int gift() const override { return neighbours_.empty() ? -1 : neighbours_.front().gift.get(); }

 private:
  static Mapping sized(int file, std::size_t bytes) {
    if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) fail("ftruncate");
    return Mapping::shared(file, bytes);
  }

  static std::uint64_t secret_of(int rank, const std::string& announced) {
    const std::size_t space = announced.find(' ');
    if (space == std::string::npos) {
      throw ProtocolError(fmt::format("rank {} announced shared memory in a way that makes no sense", rank));
    }
    return std::strtoull(announced.c_str() + space, nullptr, 10);
  }

  Visible visible_in(const Mapping& mapping) const {
    return {.base = reinterpret_cast<std::uintptr_t>(mapping.data()) + layout_.arena, .bytes = layout_.arena_bytes};
  }

  static int open_process(pid_t process) {
    const int descriptor = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
    if (descriptor < 0 && (errno == EMFILE || errno == ENFILE)) fail("pidfd_open");
    return descriptor;
  }

  // Finds nothing where there is no such socket: that rank is on another host. Nor where nobody answers, as when that
  // rank was stopped: who exchanges something with it next says so.
  void visit(int rank, const std::string& announced, std::chrono::steady_clock::time_point until,
             std::vector<Neighbour>& found) {
    const std::uint64_t secret = secret_of(rank, announced);
    const AbstractAddress address(announced.substr(0, announced.find(' ')));
    const Descriptor socket = checked(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    wait_at_most(socket.get(), until);
    while (::connect(socket.get(), address.get(), address.size) != 0) {
      if (errno == ECONNREFUSED || errno == ENOENT || errno == EAGAIN) return;
      if (errno != EINTR) fail("connect");
    }
    if (!is_same_user(socket.get())) return;
    Handed handed = take_over(socket.get());
    struct stat about {};
    if (handed.memory.get() < 0 || ::fstat(handed.memory.get(), &about) != 0) return;
    if (about.st_size < static_cast<off_t>(layout_.bytes)) return;
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known = ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid != ::getpid();
    Neighbour neighbour{.rank = rank,
                        .mapping = Mapping::shared(handed.memory.get(), layout_.bytes),
                        .event = std::move(handed.event),
                        .gift = found.empty() && rank < rank_ ? std::move(handed.gift) : Descriptor(),
                        .process = Descriptor(known ? open_process(peer.pid) : -1)};
    std::byte* base = neighbour.mapping.data();
    const Head& head = layout_.head(base);
    if (head.secret.load() != secret || head.layout != kLayout) return;
    layout_.mark(base, rank_).store(secret_);
    found.push_back(std::move(neighbour));
  }

  int rank_;
  Layout layout_;
  Descriptor file_;
  Descriptor event_;
  std::uint64_t secret_ = random_number();
  Mapping mapping_;
  Arena arena_;
  std::vector<Neighbour> neighbours_;
};

}  // namespace

std::unique_ptr<HostMemory> make_shm(int rank, int ranks, const Exchange& exchange, int gift,
                                     std::chrono::milliseconds patience) {
  auto memory = std::make_unique<ShmMemory>(rank, ranks);
  memory->find_neighbours(ranks, exchange, gift, patience);
  return memory;
}

}  // namespace trireme::transport
