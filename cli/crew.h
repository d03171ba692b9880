// The ranks of a host as children of this process.
#pragma once

#include "cli/guardian.h"
#include "cli/host.h"
#include "cli/lines.h"
#include "cli/process.h"

#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace trireme::cli {

class Crew final : public Host {
 public:
  /// How ranks get their input and output.
  enum class Ends : std::uint8_t {
    own,    ///< this process's, as far as nothing has to be put before lines; rank 0 reads the input
    pipes,  ///< all output goes to the sinks, and rank 0 reads what give_input() says
  };

  /// `in_child` undoes in a rank what this process has set for itself.
  Crew(Ends ends, Sink& out, Sink& err, Events events, std::function<void()> in_child);
  ~Crew() override;

  /// What rank 0 reads from, if it is started here; without it, there is nothing to read.
  void give_input(int descriptor) { input_ = descriptor; }

  void watch(Poll& poll) override;
  void settle() override;
  void look_at_children() override;
  bool ready() const override { return true; }
  void start(const Share& share) override;
  std::vector<int> running() const override;
  bool quiet() const override;
  void look() override;
  void tell_fate(int rank, const std::string& how) override;
  void tell_last(int rank, const std::optional<Record>& last) override;
  void pass_on(int signal, bool by_terminal) override;
  void end() override;
  void kill() override;
  void finish() override;

 private:
  // How the output of a rank comes.
  struct Stream {
    Descriptor descriptor;
    Lines lines;
    Sink* sink;
  };

  struct Rank {
    int number = 0;
    pid_t pid = -1;
    bool own_group = true;       // with all that it starts
    bool ended = false;          // though still there as a zombie, so that its number is not given to another
    int stopped_by = 0;          // a signal
    std::uint64_t recorded = 0;  // operations that have been told of
    std::vector<Stream> streams{};

    void signal(int number_of_signal) const;
  };

  std::vector<std::string> common_environment(const Share& share, int cores) const;
  int start_rank(const Share& share, int number, const std::vector<std::string>& common);
  void give_up_start(const std::string& program, int error);
  void kill_and_reap();
  void look_for_stopped();
  void look_for_ended();
  void look_at(Rank& rank);
  void hear_question();
  static bool read(Stream& stream);
  static void drain(Rank& rank);
  static void close(Stream& stream);

  const Ends ends_;
  Sink& out_;
  Sink& err_;
  const Events events_;
  const std::function<void()> in_child_;
  int input_;
  bool report_ = false;
  std::unique_ptr<Board> board_;  // once they are started
  std::unique_ptr<Guardian> guardian_;
  std::vector<Rank> ranks_;
};

}  // namespace trireme::cli
