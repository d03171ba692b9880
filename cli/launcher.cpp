#include "cli/launcher.h"

#include "cli/agent.h"
#include "cli/crew.h"
#include "cli/lines.h"
#include "cli/logbook.h"
#include "cli/notices.h"
#include "cli/process.h"
#include "cli/reserved_port.h"
#include "cli/ways.h"
#include "rendezvous/guard.h"
#include "rendezvous/meeting.h"
#include "rendezvous/server.h"
#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;

// How long an agent may take to say that ranks that were killed have ended.
constexpr auto kReportPatience = 5s;

// How long ranks may go on when one has failed, before they are ended.
constexpr auto kLastWords = 1500ms;

// How long who asks waits for answers, and how often hosts are asked: all ranks ask at once.
constexpr auto kAnswers = 1s;
constexpr auto kQuestions = 50ms;

// How often records are looked at for who comes late.
constexpr auto kLook = 50ms;

Guard guard_of(const Launch& options, Notices& notices) {
  Guard guard = rendezvous::guard_for_ranks();
  guard.encrypt = guard.encrypt || options.encrypt;
  guard.notice = [&notices](const std::string& text) { notices.add(text); };
  return guard;
}

std::string present_folder() {
  std::error_code error;
  const auto folder = std::filesystem::current_path(error);
  if (error) throw SystemError(fmt::format("the present folder has no name: {}", error.message()));
  return folder.string();
}

class Launcher {
 public:
  explicit Launcher(const Launch& options)
      : options_(options),
        reach_(reaches_others() ? ReservedPort::Reach::everywhere : ReservedPort::Reach::loopback),
        guard_(guard_of(options, strangers_)),
        server_(serve(reaches_others() ? "" : "127.0.0.1", options.ports, options.ranks, guard_)),
        logbook_(options) {
    struct stat out {};
    struct stat err {};
    const bool same = ::fstat(STDOUT_FILENO, &out) == 0 && ::fstat(STDERR_FILENO, &err) == 0 &&
                      out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    if (same) err_ = &out_;  // Or a long line of one might have one of the other in it.
    if (options.timeout) timeout_at_ = after(*options.timeout);
  }

  ~Launcher() {
    each([](Host& host) { host.let_go(); });
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run() {
    if (options_.hosts.empty()) {
      add_crew("", options_.ranks);
    } else {
      for (const HostSlots& host : options_.hosts) {
        needs_agent(options_, host.host) ? add_agent(host.host, host.slots) : add_crew(host.host, host.slots);
      }
    }
    while (!ending_ && !all(&Host::ready)) turn();
    if (!ending_) start_all();
    while (!finished()) turn();
    // What ranks have started, and left behind. Their groups are theirs as long as the zombies are there.
    if (ending_ || failed_at_) each([](Host& host) { host.kill(); });
    if (started_) {
      logbook_.close({.status = status_,
                      .failed_at = failed_at_,
                      .signal = ended_by_,
                      .kept_others_from_meeting = server_->culprits()},
                     *err_);
    }
    return status_;
  }

 private:
  struct Place {
    std::string name;  // as the user calls it
    int ranks = 0;
    int first = 0;  // of them
    std::unique_ptr<Host> host{};
    Agent* agent = nullptr;           // if it is elsewhere
    Clock::time_point asked_until{};  // what comes of others by then is passed on

    bool has(int rank) const { return rank >= first && rank < first + ranks; }
  };

  static Clock::time_point after(Seconds time) {
    constexpr Seconds kLongest = std::chrono::hours(24 * 365);
    return Clock::now() + std::chrono::ceil<Clock::duration>(std::min(time, kLongest));
  }

  bool reaches_others() const {
    return std::any_of(options_.hosts.begin(), options_.hosts.end(),
                       [&](const HostSlots& host) { return needs_agent(options_, host.host); });
  }

  template <typename Act>
  void each(Act act) {
    for (Place& place : places_) act(*place.host);
  }

  bool all(bool (Host::*is)() const) const {
    return std::all_of(places_.begin(), places_.end(), [&](const Place& place) { return ((*place.host).*is)(); });
  }

  void say(const std::string& message) { err_->add(fmt::format("trireme run: {}\n", message)); }

  std::function<void()> in_child() const {
    return [this] {
      limit_.restore();
      signals_.restore();
    };
  }

  Host::Events events_of(const std::string& host) {
    return {.alive =
                [this, host](const std::vector<Alive>& alive) {
                  for (const Alive& one : alive) take_alive(host, one);
                },
            .ended =
                [this, host](const std::vector<End>& ended) {
                  for (const End& end : ended) conclude(host, end);
                },
            .recorded = [this](const Recorded& recorded) { take_records(recorded); },
            .asked = [this, host] { take_question(host); },
            .failed =
                [this, host](const std::string& why, int exit_status, Loss loss) {
                  lose_ranks_of(host, loss);
                  give_up(why, exit_status);
                },
            .remark = [this](const std::string& text) { say(text); }};
  }

  void add_crew(const std::string& name, int ranks) {
    places_.push_back(
        {name, ranks, 0, std::make_unique<Crew>(Crew::Ends::own, out_, *err_, events_of(name), in_child())});
  }

  void add_agent(const std::string& name, int ranks) {
    auto agent = std::make_unique<Agent>(
        name, agent_command(options_, name),
        Agent::Offer{addresses_for(options_, name), server_->port(), present_folder(), with_guard(options_.variables)},
        out_, *err_, events_of(name), in_child());
    Agent* const seen = agent.get();
    places_.push_back({name, ranks, 0, std::move(agent), seen});
  }

  void start_all() {
    const std::string master = master_address();
    const std::uint16_t master_port =
        places_.front().agent != nullptr ? places_.front().agent->found().port : reserved_.emplace(reach_).number();
    int first = 0;
    for (Place& place : places_) {
      place.first = first;
      first += place.ranks;
    }
    for (Place& place : places_) {
      if (failed_at_) {  // Another host does not have the program.
        for (int number = place.first; number < place.first + place.ranks; ++number) {
          logbook_.of(number).host = place.name;
          logbook_.of(number).fate = "was not started";
        }
        continue;
      }
      Share share{.first = place.first,
                  .count = place.ranks,
                  .ranks = options_.ranks,
                  .command = options_.command,
                  .variables = options_.variables,
                  .prefix = options_.prefix,
                  .pin = options_.pin,
                  .report = options_.report};
      const std::string rendezvous = place.agent != nullptr ? place.agent->found().rendezvous : "127.0.0.1";
      share.variables.push_back(fmt::format("MASTER_ADDR={}", master));
      share.variables.push_back(fmt::format("MASTER_PORT={}", master_port));
      share.variables.push_back(
          fmt::format("TRIREME_RENDEZVOUS={}", rendezvous::format_host_and_port(rendezvous, server_->port())));
      share.variables = with_guard(std::move(share.variables));
      started_ = true;
      if (options_.report) look_at_ = Clock::now() + kLook;
      place.host->start(share);
    }
  }

  std::vector<std::string> with_guard(std::vector<std::string> variables) const {
    std::ranges::copy(rendezvous::variables_for_ranks(guard_), std::back_inserter(variables));
    return variables;
  }

  // Of the host of rank 0, as the others reach it: what is loopback to itself is where they reach the launcher.
  std::string master_address() const {
    const Agent* const first = places_.front().agent;
    if (first != nullptr && !rendezvous::is_loopback(first->found().address)) return first->found().address;
    for (const Place& place : places_) {
      if (place.agent != nullptr && !rendezvous::is_loopback(place.agent->found().rendezvous)) {
        return place.agent->found().rendezvous;
      }
    }
    return "127.0.0.1";
  }

  std::vector<int> running() const {
    std::vector<int> numbers;
    for (const Place& place : places_) {
      const std::vector<int> here = place.host->running();
      numbers.insert(numbers.end(), here.begin(), here.end());
    }
    return numbers;
  }

  bool all_ended() const {
    return std::all_of(places_.begin(), places_.end(),
                       [](const Place& place) { return place.host->running().empty(); });
  }

  // Of those that have not ended.
  bool all_stopped() const {
    const std::vector<int> numbers = running();
    return std::all_of(numbers.begin(), numbers.end(), [&](int number) { return logbook_.of(number).stopped_by != 0; });
  }

  // Before anything is started.
  bool all_have_answered() const {
    return std::all_of(places_.begin(), places_.end(),
                       [](const Place& place) { return place.host->failed() || place.host->ready(); });
  }

  bool pending() const { return out_.pending() || err_->pending(); }

  bool finished() const {
    if (given_up()) return true;
    if (!all_ended()) return false;
    if (give_up_at_ && Clock::now() >= *give_up_at_) return true;
    return all(&Host::quiet) && !pending();
  }

  // On a host that does not even say that what was killed has ended.
  bool given_up() const { return give_up_at_ && Clock::now() >= *give_up_at_ + kReportPatience; }

  // Ranks have ended, and what they started is not waited for, or no longer than the grace.
  bool nothing_more_comes() const { return (!ending_ || give_up_at_) && all_ended(); }

  void turn() {
    Poll poll;
    poll.on(signals_.descriptor(), POLLIN, [this] { take_signals(); });
    poll.on(strangers_.descriptor(), POLLIN, [this] {
      for (const std::string& text : strangers_.take()) say(text);
    });
    for (Sink* sink : {&out_, &own_err_}) {
      if (sink->pending()) poll.on(sink->descriptor(), POLLOUT, [sink] { sink->write_some(); });
    }
    each([&](Host& host) { host.watch(poll); });
    poll.wait(wait_time());
    if (started_ && nothing_more_comes() && !std::exchange(finishing_, true)) each([](Host& host) { host.finish(); });
    each([](Host& host) { host.settle(); });
    if (out_.broken() && !ending_) {
      say("nobody reads the output any more; ending all ranks");
      status_ = 128 + SIGPIPE;
      end_all();
    }
    look_at_the_clock();
  }

  int wait_time() const {
    auto next = Clock::time_point::max();
    std::optional<Clock::time_point> over;
    if (give_up_at_) over = all_ended() ? *give_up_at_ : *give_up_at_ + kReportPatience;
    for (const auto& time : {timeout_at_, look_at_, answer_at_, end_at_, kill_at_, over}) {
      if (time) next = std::min(next, *time);
    }
    for (const Place& place : places_) {
      if (const auto time = place.host->wake_at()) next = std::min(next, *time);
    }
    return next == Clock::time_point::max() ? -1 : rendezvous::poll_time(next);
  }

  void look_at_the_clock() {
    const auto now = Clock::now();
    if (timeout_at_ && now >= *timeout_at_) {
      timeout_at_.reset();
      if (!ending_ && status_ != 0) {  // The others are not what it is over for.
        end_all();
      } else if (!(started_ && all_ended()) && !ending_) {
        say(fmt::format("the time of {} is over; ending all ranks", format_time(*options_.timeout)));
        status_ = kTimedOut;
        failed_at_ = now;
        note_who_is_awaited();
        end_all();
      }
    }
    if (look_at_ && now >= *look_at_) {
      look_at_ = now + kLook;
      logbook_.settle();
      each([](Host& host) { host.look(); });
    }
    if (answer_at_ && now >= *answer_at_) {
      answer_at_.reset();
      answered_at_ = now;
      each([](Host& host) { host.look(); });
    }
    if (end_at_ && (now >= *end_at_ || (started_ ? all_stopped() : all_have_answered()))) end_all();
    if (kill_at_ && now >= *kill_at_) kill_all(fmt::format("within {}", format_time(options_.grace)));
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.descriptor(), &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      // The terminal sends to all of its group itself.
      const bool by_terminal = info.ssi_code == SI_KERNEL;
      if (signal == SIGCHLD) {
        each([](Host& host) { host.look_at_children(); });
        continue;
      }
      const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGQUIT;
      if (ends && !ending_) note_who_is_awaited();
      each([&](Host& host) { host.pass_on(signal, by_terminal); });
      if (signal == SIGTSTP) ::raise(SIGSTOP);
      if (signal == SIGINT && std::exchange(interrupted_, true)) kill_all("at the first interrupt");
      if (ends) {
        if (!ending_) ended_by_ = signal;
        begin_grace();
      }
      if (!started_ && signal == SIGHUP) begin_grace();
      if (!started_ && ending_ && status_ == 0) status_ = 128 + signal;
    }
  }

  void take_alive(const std::string& host, const Alive& alive) {
    RankReport& rank = logbook_.of(alive.rank);
    rank.pid = alive.pid;
    rank.host = host;
    // Who is ended is made to go on for that.
    if (!ending_) rank.stopped_by = alive.stopped_by;
  }

  void conclude(const std::string& host, const End& end) {
    const int status = end.exited ? end.status : 128 + end.status;
    const std::string how =
        end.exited ? fmt::format("exited with status {}", status)
                   : fmt::format("was killed by {}{}", name_of_signal(end.status), end.dumped ? ", core dumped" : "");
    RankReport& rank = logbook_.of(end.rank);
    rank.pid = end.pid;
    rank.host = host;
    const std::string where = fmt::format("pid {}{}", end.pid, host.empty() ? "" : " on " + host);
    tell_fate(rank, ending_ && !end.exited ? "was ended by trireme run" : how, where);
    if (status == 0) return;
    if (status_ == 0) status_ = status;
    // A shell around the program exits with the status that a killed one has; exit(-1) is 255.
    if (!ending_) rank.killed = status > 128 && status <= 128 + SIGRTMAX && status != 128 + SIGABRT;
    if (ending_ || failed_at_) return;
    rank.failed = true;
    say(fmt::format("rank {} ({}) {}{}", end.rank, where, how, all_ended() ? "" : "; ending the other ranks"));
    end_soon();
  }

  void tell_fate(RankReport& rank, const std::string& how, const std::string& where,
                 rendezvous::Ran ran = rendezvous::Ran::yes) {
    rank.fate = how;
    each([&](Host& host) { host.tell_fate(rank.rank, how); });
    server_->tell_ended(rank.rank, where, how, ran);
  }

  void lose_ranks_of(const std::string& host, Loss loss) {
    for (Place& place : places_) {
      if (place.name != host) continue;
      if (!started_) return;
      for (int number = place.first; number < place.first + place.ranks; ++number) {
        if (!logbook_.of(number).fate.empty()) continue;
        logbook_.of(number).host = host;
        logbook_.of(number).lost = loss == Loss::lost;
        logbook_.of(number).killed = !failed_at_;
        const std::string where = host.empty() ? "here" : "on " + host;
        if (loss == Loss::lost) {
          tell_fate(logbook_.of(number), "was on a host that is lost", where);
        } else {
          tell_fate(logbook_.of(number), "could not be started", where, rendezvous::Ran::no);
        }
      }
    }
  }

  void take_records(const Recorded& recorded) {
    logbook_.take(recorded);
    const Record* const last = logbook_.of(recorded.rank).last();
    for (const Place& place : places_) {
      if (Clock::now() < place.asked_until && !place.has(recorded.rank)) {
        place.host->tell_last(recorded.rank, last == nullptr ? std::nullopt : std::optional(*last));
      }
    }
  }

  // Ranks there have waited in vain, and are to say what those of other hosts did last: that may be known to nobody else.
  void take_question(const std::string& host) {
    const auto now = Clock::now();
    for (Place& place : places_) {
      if (place.name == host) place.asked_until = now + kAnswers;
    }
    if (!answer_at_) answer_at_ = std::max(now, answered_at_ + kQuestions);
  }

  // Before they are ended, which they would then all be the reason of.
  void note_who_is_awaited() {
    if (!started_) return;
    for (const int rank : server_->awaited()) logbook_.of(rank).kept_others_from_meeting = true;
  }

  // A host can't be used, or not any more.
  void give_up(const std::string& why, int exit_status) {
    if (status_ == 0) status_ = exit_status;
    if (ending_ && started_) return;
    say(fmt::format("{}{}", why, all_ended() ? "" : "; ending the other ranks"));
    if (started_) {
      end_soon();
    } else if (!ending_ && !end_at_) {
      end_at_ = Clock::now() + kLastWords;  // Others that can't be used are named with it.
    }
  }

  // Those that are left know what happened too, and may have something to say about it.
  void end_soon() {
    if (failed_at_) return;
    failed_at_ = Clock::now();
    end_at_ = *failed_at_ + kLastWords;
  }

  // What ranks did last is asked first: a host may be gone before it has said how they ended.
  void end_all() {
    end_at_.reset();
    each([](Host& host) { host.look(); });
    each([](Host& host) { host.end(); });
    begin_grace();
  }

  void begin_grace() {
    ending_ = true;
    if (!kill_at_ && !give_up_at_) kill_at_ = after(options_.grace);
  }

  void kill_all(const std::string& when) {
    kill_at_.reset();
    if (give_up_at_) return;
    const std::vector<int> stubborn = running();
    each([](Host& host) { host.kill(); });
    if (!stubborn.empty()) {
      say(fmt::format("{} did not end {}; killing {}", rendezvous::list_ranks(stubborn), when,
                      stubborn.size() == 1 ? "it" : "them"));
    }
    give_up_at_ = Clock::now() + 1s;
  }

  const Launch& options_;
  Signals signals_;
  FileLimit limit_;
  const ReservedPort::Reach reach_;
  std::optional<ReservedPort> reserved_;
  Notices strangers_;
  const Guard guard_;
  std::unique_ptr<rendezvous::Server> server_;
  Logbook logbook_;
  Sink out_{STDOUT_FILENO};
  Sink own_err_{STDERR_FILENO};
  Sink* err_ = &own_err_;
  int status_ = 0;
  bool started_ = false;
  bool ending_ = false;  // one way or another
  bool finishing_ = false;
  bool interrupted_ = false;  // once; twice is impatience
  int ended_by_ = 0;          // a signal that was passed on; 0: none
  std::optional<Clock::time_point> timeout_at_;
  std::optional<Clock::time_point> failed_at_;  // the first rank or host, or the time was over
  std::optional<Clock::time_point> look_at_;    // records
  std::optional<Clock::time_point> answer_at_;  // ranks that have asked
  Clock::time_point answered_at_{};
  std::optional<Clock::time_point> end_at_;  // those that did not end by themselves
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> give_up_at_;  // on output that nobody takes, once ranks were killed
  std::vector<Place> places_;                    // first to go: what it runs tells the others
};

}  // namespace

int launch(const Launch& options) { return Launcher(options).run(); }

}  // namespace trireme::cli
