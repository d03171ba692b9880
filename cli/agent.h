// The ranks of another host, which an agent runs there: `ssh HOST trireme host-agent`, or another command that runs one
// on a host.
#pragma once

#include "cli/clock_offset.h"
#include "cli/host.h"
#include "cli/lines.h"
#include "cli/messages.h"
#include "cli/process.h"

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace trireme::cli {

class Agent final : public Host {
 public:
  /// Where the rendezvous might be reached from there.
  struct Offer {
    std::future<std::vector<std::string>> addresses;  ///< best first; nobody waits for names before the agent is there
    std::uint16_t port = 0;
    std::string folder;                  ///< in which ranks are to run
    std::vector<std::string> variables;  ///< by which it knows the secret that is to be proved there
  };

  /// What the host says of the way between it and the launcher.
  struct Found {
    std::string rendezvous;  ///< the address at which the host reaches it
    std::string address;     ///< the host's own on the way there
    std::uint16_t port = 0;  ///< free on the host
  };

  /// Starts the command, which is to run `trireme host-agent` there. Throws SystemError if there can't be one more
  /// process.
  Agent(std::string host, std::vector<std::string> command, Offer offer, Sink& out, Sink& err, Events events,
        const std::function<void()>& in_child);
  ~Agent() override;

  void let_go() override;
  void watch(Poll& poll) override;
  void settle() override;
  void look_at_children() override;
  std::optional<Clock::time_point> wake_at() const override;
  bool ready() const override { return found_.has_value(); }
  bool failed() const override { return failed_; }
  void start(const Share& share) override;
  std::vector<int> running() const override { return running_; }
  bool quiet() const override { return quiet_; }
  void look() override;
  void tell_fate(int rank, const std::string& how) override { send({{"fate", how}, {"rank", rank}}); }
  void tell_last(int rank, const std::optional<Record>& last) override;
  void pass_on(int signal, bool by_terminal) override;
  void end() override { send({{"end", true}}); }
  void kill() override { send({{"kill", true}}); }
  void finish() override;

  /// Once it is ready().
  const Found& found() const { return *found_; }

 private:
  void send(const Message& message);
  void read();
  bool read_errors();
  void read_greeting();
  void ask_clock();
  void feed();
  void take(const Message& message);
  int one_of_its_own(int rank) const;
  bool reap();
  void fail(const std::string& why, int exit_status, Loss loss = Loss::lost);
  std::string explain_end(int status) const;

  const std::string host_;
  const std::vector<std::string> command_;
  Offer offer_;
  Sink& out_;
  Sink& err_;
  const Events events_;

  pid_t pid_ = -1;
  int status_ = 0;                            // once it has ended
  std::optional<Clock::time_point> reap_by_;  // it was let go of, or has ended its output: it is to end by then
  Descriptor to_agent_;
  Descriptor from_agent_;
  Descriptor errors_;
  std::optional<Sink> wire_;
  Lines error_lines_;
  bool greeted_ = false;
  std::string before_greeting_;
  Unpacker unpacker_;
  std::optional<Found> found_;
  std::vector<int> ranks_;
  std::vector<int> running_;  // of them
  bool quiet_ = true;
  bool feeding_ = false;    // rank 0 is there, and takes more of this process's input
  bool finishing_ = false;  // what it says is read even if nobody takes it
  bool failed_ = false;
  ClockOffset offset_;
  Clock::time_point heard_at_ = Clock::now();
  Clock::time_point beat_at_ = Clock::now() + kBeat;
};

}  // namespace trireme::cli
