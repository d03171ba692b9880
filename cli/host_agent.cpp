// trireme host-agent: runs the ranks of this host for a launcher on another, which it hears and answers by its standard
// input and output; messages.h has what they say. When the launcher is gone, so are the ranks.
#include "base/build.h"
#include "cli/commands.h"
#include "cli/crew.h"
#include "cli/launcher.h"
#include "cli/messages.h"
#include "cli/reserved_port.h"
#include "rendezvous/client.h"
#include "rendezvous/guard.h"
#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;

// For one address of the launcher's; those that are no way to it mostly say so at once.
constexpr auto kTryPatience = 3s;
// For all of them: nothing is said meanwhile, and the launcher takes a long silence for the end of this host.
constexpr auto kFindPatience = 20s;
static_assert(kFindPatience < kSilence);

rendezvous::Lookup lookup_in(const std::vector<std::string>& variables) {
  return [&variables](const char* name) -> std::optional<std::string> {
    const std::string begin = fmt::format("{}=", name);
    // The last that is said of it counts.
    for (auto variable = variables.rbegin(); variable != variables.rend(); ++variable) {
      if (variable->starts_with(begin)) return variable->substr(begin.size());
    }
    return std::nullopt;
  };
}

class HostAgent {
 public:
  int run() {
    wire_.add(fmt::format("{} of {}\n", kGreeting, build_name()));
    while (!over_) turn();
    if (reporting_) crew_.kill();  // What ranks that have ended left behind goes with the others.
    return 0;
  }

 private:
  void turn() {
    Poll poll;
    poll.on(STDIN_FILENO, POLLIN, [this] { read(); });
    poll.on(signals_.descriptor(), POLLIN, [this] { take_signals(); });
    if (wire_.pending()) poll.on(STDOUT_FILENO, POLLOUT, [this] { wire_.write_some(); });
    if (input_.pending()) poll.on(input_.descriptor(), POLLOUT, [this] { write_input(); });
    crew_.watch(poll);
    poll.wait(rendezvous::poll_time(std::min(beat_at_, silent_at_)));
    crew_.settle();
    pass_on_output();
    look_at_the_clock();
    if (wire_.broken()) over_ = true;
  }

  void send(const Message& message) { wire_.add(pack(message)); }

  // The launcher takes it as fast as it likes. Then ranks wait as they would for a terminal.
  void pass_on_output() {
    if (wire_.full()) return;
    if (out_.pending()) send({{"out", out_.take()}});
    if (err_.pending()) send({{"err", err_.take()}});
    if (std::exchange(reporting_, reporting_ && !crew_.quiet()) && !reporting_) send({{"quiet", true}});
  }

  void look_at_the_clock() {
    const auto now = Clock::now();
    if (now >= silent_at_) over_ = true;
    if (now < beat_at_) return;
    beat_at_ = now + kBeat;
    send({{"beat", true}});
    crew_.look();  // Should this host be lost, it is known what its ranks did not long before.
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.descriptor(), &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) crew_.look_at_children();
      if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT) over_ = true;
    }
  }

  void read() {
    std::array<char, std::size_t{64} * 1024> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
    const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) {
      over_ = true;
      return;
    }
    silent_at_ = Clock::now() + kSilence;
    unpacker_.add({buffer.data(), static_cast<std::size_t>(count)});
    while (const auto message = unpacker_.next()) take(*message);
  }

  void take(const Message& message) {
    if (message.contains("find")) find(message.at("find"));
    if (message.contains("start")) start(message);
    if (message.contains("input")) take_input(message.at("input"));
    if (message.contains("clock")) {
      send({{"clock", message.at("clock")}, {"there", Clock::now().time_since_epoch().count()}});
    }
    if (message.contains("look")) crew_.look();
    if (message.contains("fate")) crew_.tell_fate(message.at("rank"), message.at("fate"));
    if (message.contains("last")) {
      const Message& last = message.at("last");
      crew_.tell_last(message.at("rank"), last.is_null() ? std::nullopt : std::optional(to_record(last)));
    }
    if (message.contains("end")) crew_.end();
    if (message.contains("kill")) crew_.kill();
    if (message.contains("finish")) crew_.finish();
    if (message.contains("signal")) {
      const int signal = message.at("signal");
      crew_.pass_on(signal, false);
      // A launcher that stops is silent, and yet there.
      if (signal == SIGTSTP) silent_at_ = Clock::time_point::max();
    }
  }

  void find(const Message& offer) {
    // First, since what the variables name may be in that folder.
    const std::string folder = offer.at("folder");
    if (::chdir(folder.c_str()) != 0) {
      fail(fmt::format("the folder {}, in which ranks are to run, can't be entered there: {}; start them from one that "
                       "all hosts have",
                       folder, std::generic_category().message(errno)),
           kNotExecutable);
      return;
    }
    const std::vector<std::string> addresses = offer.at("addresses");
    const std::uint16_t port = offer.at("port");
    const std::vector<std::string> variables = offer.at("variables");
    Guard guard;
    try {
      guard = rendezvous::guard_from_environment(lookup_in(variables));
    } catch (const UsageError& error) {
      fail(error.what(), kWrongUse);
      return;
    }
    const auto over = Clock::now() + kFindPatience;
    std::vector<std::string> tried;
    for (const std::string& address : addresses) {
      try {
        const auto left = static_cast<int>(addresses.size() - tried.size());
        const auto deadline = Clock::now() + std::min<Clock::duration>(kTryPatience, (over - Clock::now()) / left);
        auto way = rendezvous::connect_to(rendezvous::resolve(address, port).front(), deadline);
        const std::string own = rendezvous::local_number(way);
        // Many machines have something at any address and port: only the launcher knows the secret.
        rendezvous::Client::visit(std::move(way), guard, deadline);
        send({{"found",
               {{"rendezvous", address},
                {"address", own},
                {"port", master_port_.emplace(ReservedPort::Reach::everywhere).number()}}}});
        return;
      } catch (const Error& error) {
        tried.push_back(fmt::format("{} ({})", rendezvous::format_host_and_port(address, port), error.what()));
      }
    }
    fail(fmt::format("it does not reach the launcher at {}: give an address of the launcher that it does reach with "
                     "--address or --interface, and let the firewall pass it (--ports)",
                     fmt::join(tried, ", ")),
         1);
  }

  void start(const Message& message) {
    reporting_ = true;
    Pipe pipe;
    crew_.give_input(pipe.out.get());
    crew_.start(to_share(message.at("start")));
    input_end_ = std::move(pipe.in);
    input_ = Sink(input_end_.get());
  }

  void take_input(const std::string& bytes) {
    if (bytes.empty()) input_end_.close();
    if (input_end_) input_.add(bytes);
  }

  // Rank 0 may have closed its side: then nobody has to send more.
  void write_input() {
    input_.write_some();
    if (!input_.pending() && !input_.broken()) send({{"taken", true}});
  }

  void fail(const std::string& why, int exit_status) {
    reporting_ = false;
    send({{"failed", why}, {"status", exit_status}});
  }

  Crew::Events events() {
    return {.alive =
                [this](const std::vector<Alive>& alive) {
                  Message all = Message::array();
                  for (const Alive& one : alive) all.push_back(to_message(one));
                  send({{"alive", all}});
                },
            .ended =
                [this](const std::vector<End>& ended) {
                  // What they said comes before.
                  if (out_.pending()) send({{"out", out_.take()}});
                  if (err_.pending()) send({{"err", err_.take()}});
                  Message all = Message::array();
                  for (const End& end : ended) all.push_back(to_message(end));
                  send({{"ended", all}});
                },
            .recorded =
                [this](const Recorded& recorded) {
                  send({{"recorded", to_message(recorded)}});
                },
            .asked =
                [this] {
                  send({{"asks", true}});
                },
            .failed = [this](const std::string& why, int exit_status, Loss) { fail(why, exit_status); },
            .remark =
                [this](const std::string& text) {
                  send({{"remark", text}});
                }};
  }

  Signals signals_;
  FileLimit limit_;
  Sink wire_{STDOUT_FILENO};
  Sink out_{-1};
  Sink err_{-1};
  Descriptor input_end_;  // of rank 0's pipe
  Sink input_{-1};
  Unpacker unpacker_;
  std::optional<ReservedPort> master_port_;
  bool reporting_ = false;  // ranks have been started, and it has not been said that nothing more comes of them
  bool over_ = false;
  Clock::time_point beat_at_ = Clock::now() + kBeat;
  Clock::time_point silent_at_ = Clock::now() + kSilence;
  Crew crew_{Crew::Ends::pipes, out_, err_, events(), [this] {
               limit_.restore();
               signals_.restore();
             }};
};

}  // namespace

void add_host_agent(CLI::App& app, Action& run) {
  auto* command = app.add_subcommand("host-agent", "Run the ranks of this host for 'trireme run --hosts' on another");
  command->group("");
  command->callback([&run] { run = [] { return HostAgent().run(); }; });
}

}  // namespace trireme::cli
