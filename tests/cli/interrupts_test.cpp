// Signals that are held back: what comes, what stays as it was, and what is left when nobody holds them any more.
#include "cli/interrupts.h"

#include "cli/process.h"

#include <gtest/gtest.h>

#include <sys/signalfd.h>
#include <unistd.h>

namespace trireme::cli {
namespace {

bool is_blocked(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return ::sigismember(&mask, signal) == 1;
}

// A way to take a signal, until it goes.
class Handling {
 public:
  Handling(int signal, void (*handler)(int)) : signal_(signal), before_(::signal(signal, handler)) {}
  ~Handling() { ::signal(signal_, before_); }
  Handling(const Handling&) = delete;
  Handling& operator=(const Handling&) = delete;

 private:
  int signal_;
  void (*before_)(int);
};

TEST(Interrupts, ComeOnceAndSayWhich) {
  const Interrupts interrupts;
  EXPECT_NO_THROW(interrupts.check());
  ::raise(SIGTERM);
  try {
    interrupts.check();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Interrupted& interrupted) {
    EXPECT_EQ(interrupted.exit_status(), 128 + SIGTERM);
  }
  EXPECT_NO_THROW(interrupts.check());
}

TEST(Interrupts, LeaveIgnoredSignalsAlone) {
  const Handling ignored(SIGHUP, SIG_IGN);
  const Interrupts interrupts;
  ::raise(SIGHUP);
  EXPECT_NO_THROW(interrupts.check());
  EXPECT_FALSE(is_blocked(SIGHUP));
  EXPECT_TRUE(is_blocked(SIGINT));
}

TEST(Interrupts, LeaveNothingBehind) {
  { const Interrupts interrupts; }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) EXPECT_FALSE(is_blocked(signal)) << signal;
}

TEST(Signals, TellOfChildrenThoughTheyWereIgnored) {
  const Handling ignored(SIGCHLD, SIG_IGN);
  const Handling hangup(SIGHUP, SIG_IGN);
  {
    const Signals signals;
    ::raise(SIGHUP);
    ::raise(SIGCHLD);
    signalfd_siginfo info{};
    ASSERT_EQ(::read(signals.descriptor(), &info, sizeof info), static_cast<ssize_t>(sizeof info));
    EXPECT_EQ(info.ssi_signo, static_cast<unsigned>(SIGCHLD));
    EXPECT_LT(::read(signals.descriptor(), &info, sizeof info), 0) << "signal " << info.ssi_signo << " came";
  }
  EXPECT_FALSE(is_blocked(SIGCHLD));
}

}  // namespace
}  // namespace trireme::cli
