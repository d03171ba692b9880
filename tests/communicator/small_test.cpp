// What a small message costs: no memory that is set aside for it, and no call of the system if its peer is there.
#include "communicator/cluster.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <linux/prctl.h>
#include <new>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <ucontext.h>
#include <unistd.h>

// Sanitizers have their own memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
#endif

#if COUNTS_ALLOCATIONS

namespace {

thread_local bool counting = false;
std::atomic<long> allocations{0};

}  // namespace

void* operator new(std::size_t bytes) {
  if (counting) ++allocations;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif

namespace trireme::test {
namespace {

// There and back between two ranks; the one with the even number begins.
[[maybe_unused]] void ping_pong(Communicator& world, std::array<float, 64>& data) {
  const int peer = world.rank() ^ 1;
  if (world.rank() % 2 == 0) world.send(data, peer);
  world.receive(data, peer);
  if (world.rank() % 2 == 1) world.send(data, peer);
}

#if COUNTS_ALLOCATIONS

// All kinds of calls, so that ranks which are quick are ahead of the others.
void exchange(Communicator& world, std::array<float, 64>& data, std::array<float, 256>& all) {
  world.allreduce(data, Op::max);
  world.broadcast(data, 0);
  world.barrier();
  world.allgather(data, all);
  world.allreduce(std::span(data).first(3), Op::max);
  world.reduce(data, 1, Op::max);
  ping_pong(world, data);
}

TEST(Small, MessagesAllocateNothing) {
  Cluster cluster(Way::shm, 4);
  cluster.run([](Communicator& world) {
    std::array<float, 64> data{};
    std::array<float, 256> all{};
    constexpr int kRounds = 500;
    for (int round = 0; round < 2 * kRounds; ++round) {
      counting = round >= kRounds;
      exchange(world, data, all);
    }
    counting = false;
  });
  // But for lists that grow to the most that ever waited at once, which is more where ranks wait for cores.
  EXPECT_LT(allocations.exchange(0), 1000) << "in 16,000 calls";
}

#endif

#if defined(__x86_64__) && defined(PR_SET_SYSCALL_USER_DISPATCH)

// While `gate` says so, this thread's calls of the system come to count_call() first, which makes them in its place.
thread_local volatile char gate = SYSCALL_DISPATCH_FILTER_ALLOW;
thread_local int calls = 0;

void count_call(int /*signal*/, siginfo_t* /*info*/, void* context) {
  gate = SYSCALL_DISPATCH_FILTER_ALLOW;  // for what is called here, and for the return; the next call counts again
  ++calls;
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long result = ::syscall(registers[REG_RAX], registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                                registers[REG_R10], registers[REG_R8], registers[REG_R9]);
  registers[REG_RAX] = result < 0 ? -errno : result;
}

// Two ranks, again and again. A peer may be taken from its core at any time, and then it is not there: on a busy machine
// few messages meet one that is, and it takes longer until enough have.
void expect_no_calls(const std::function<void(Communicator&, std::array<float, 64>&)>& round_of) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer makes calls of its own, and holds signals back";
#endif
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "two ranks that look for each other need two cores";
  struct sigaction action {};
  action.sa_sigaction = count_call;
  action.sa_flags = SA_SIGINFO;
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGSYS, &action, &before), 0);
  constexpr int kRounds = 2000;
  constexpr int kEnough = 2 * kRounds / 100;
  constexpr int kMostTries = 20;
  std::atomic<int> without{0};
  std::atomic<bool> possible{true};
  Cluster cluster(Way::shm, 2);
  const auto count = [&](Communicator& world) {
    std::array<float, 64> data{};
    for (int round = 0; round < 100; ++round) round_of(world, data);
    if (::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &gate) != 0) possible = false;
    if (possible) {
      calls = 0;
      gate = SYSCALL_DISPATCH_FILTER_BLOCK;
      ::getppid();
      EXPECT_EQ(calls, 1);
    }
    for (int round = 0; round < kRounds && possible; ++round) {
      calls = 0;
      gate = SYSCALL_DISPATCH_FILTER_BLOCK;
      round_of(world, data);
      gate = SYSCALL_DISPATCH_FILTER_ALLOW;
      if (calls == 0) ++without;
    }
    ::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
  };
  for (int tries = 0; tries < kMostTries && possible && without <= kEnough; ++tries) cluster.run(count);
  ::sigaction(SIGSYS, &before, nullptr);
  if (!possible) GTEST_SKIP() << "this kernel does not let a program see its own calls";
  EXPECT_GT(without, kEnough);
}

TEST(Small, MessagesMakeNoCallOfTheSystemWhenTheirPeerIsThere) {
  expect_no_calls([](Communicator& world, std::array<float, 64>& data) { world.allreduce(data, Op::max); });
}

TEST(Small, SendsAndReceivesMakeNoCallOfTheSystemWhenTheirPeerIsThere) { expect_no_calls(ping_pong); }

#endif

}  // namespace
}  // namespace trireme::test
