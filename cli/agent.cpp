#include "cli/agent.h"

#include "base/build.h"
#include "trireme/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

using namespace std::chrono_literals;

// From the start of the command to the greeting: people's ssh may ask other machines who somebody is.
constexpr auto kConnectPatience = 60s;
// From the end of its output, or its input, to its own.
constexpr auto kEndPatience = 2s;
// Of what a host's shell says first.
constexpr std::size_t kLongestLine = 1 << 20;

// A program in the background that reads from its terminal is stopped.
bool may_read_input() { return ::isatty(STDIN_FILENO) == 0 || ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

bool is_writable(int descriptor) {
  pollfd entry{descriptor, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

Agent::Agent(std::string host, std::vector<std::string> command, Offer offer, Sink& out, Sink& err, Events events,
             const std::function<void()>& in_child)
    : host_(std::move(host)),
      command_(std::move(command)),
      offer_(std::move(offer)),
      out_(out),
      err_(err),
      events_(std::move(events)),
      error_lines_(fmt::format("trireme run: host {}: ", host_), err) {
  Pipe input;
  Pipe output;
  Pipe error;
  const Started started = cli::start(
      {.words = command_, .input = input.out.get(), .output = output.in.get(), .error = error.in.get()}, in_child);
  pid_ = started.pid;
  to_agent_ = std::move(input.in);
  from_agent_ = std::move(output.out);
  errors_ = std::move(error.out);
  for (const Descriptor* end : {&from_agent_, &errors_, &to_agent_}) ::fcntl(end->get(), F_SETFL, O_NONBLOCK);
  wire_.emplace(to_agent_.get());
  if (started.error != 0) {
    fail(explain_failed_start(command_.front(), started.error) + "; --agent says how a host is reached",
         started.error == ENOENT ? 127 : 126);
  }
}

Agent::~Agent() {
  let_go();
  while (!reap()) std::this_thread::sleep_for(5ms);
}

// Its end closes the input of what runs on the host, which kills its ranks then.
void Agent::let_go() {
  to_agent_.close();
  from_agent_.close();
  if (!reap_by_) reap_by_ = Clock::now() + kEndPatience;
}

// Whether it has ended, by force if it takes too long.
bool Agent::reap() {
  if (pid_ <= 0) return true;
  int status = 0;
  const bool late = Clock::now() >= *reap_by_;
  if (late) ::kill(-pid_, SIGKILL);
  if (::waitpid(pid_, &status, late ? 0 : WNOHANG) == 0) return false;
  pid_ = -1;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

// One that has ended its output is lost, and how it ends says why.
void Agent::look_at_children() {
  if (failed_ || !reap_by_ || !reap()) return;
  fail(explain_end(status_), status_ == 0 ? 1 : status_);
}

void Agent::watch(Poll& poll) {
  if (wire_->pending() && to_agent_) poll.on(to_agent_.get(), POLLOUT, [this] { wire_->write_some(); });
  if (errors_) poll.on(errors_.get(), POLLIN, [this] { read_errors(); });
  if (feeding_ && may_read_input()) poll.on(STDIN_FILENO, POLLIN, [this] { feed(); });
  if (!finishing_ && (out_.full() || err_.full())) {
    heard_at_ = Clock::now();  // Nobody listens, so this is no silence.
  } else if (from_agent_) {
    poll.on(from_agent_.get(), POLLIN, [this] { read(); });
  }
}

// A piece at a time, so that signals are not kept waiting by input that nobody reads.
void Agent::feed() {
  std::array<char, std::size_t{32} * 1024> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
  const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  feeding_ = false;
  send({{"input", std::string(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)))}});
}

// What ssh and its like have to say. False if there was nothing.
bool Agent::read_errors() {
  std::array<char, 4096> buffer{};
  const ssize_t count = errors_ ? ::read(errors_.get(), buffer.data(), buffer.size()) : 0;
  if (count > 0) error_lines_.add({buffer.data(), static_cast<std::size_t>(count)});
  if (count == 0) errors_.close();
  return count > 0;
}

void Agent::read() {
  std::array<char, std::size_t{64} * 1024> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
  const ssize_t count = ::read(from_agent_.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    let_go();
    return;
  }
  heard_at_ = Clock::now();
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
  try {
    if (greeted_) {
      unpacker_.add(bytes);
    } else {
      before_greeting_ += bytes;
      read_greeting();
      if (before_greeting_.size() > kLongestLine) throw ProtocolError("a line has no end");
    }
    while (const auto message = greeted_ && !failed_ ? unpacker_.next() : std::nullopt) take(*message);
  } catch (const Error& error) {
    fail(fmt::format("its agent says what makes no sense: {}", error.what()), 1);
  } catch (const nlohmann::json::exception& error) {
    fail(fmt::format("its agent says what makes no sense: {}", error.what()), 1);
  }
}

// What shells say before that is shown to people.
void Agent::read_greeting() {
  constexpr std::string_view kAnyVersion = "trireme host-agent ";
  for (auto end = before_greeting_.find('\n'); end != std::string::npos && !greeted_;
       end = before_greeting_.find('\n')) {
    const std::string line = before_greeting_.substr(0, end);
    before_greeting_.erase(0, end + 1);
    if (line.starts_with(fmt::format("{} of ", kGreeting))) {
      greeted_ = true;
      unpacker_.add(std::exchange(before_greeting_, {}));
      send({{"find",
             {{"addresses", offer_.addresses.get()},
              {"port", offer_.port},
              {"folder", offer_.folder},
              {"variables", offer_.variables}}}});
    } else if (line.starts_with(kAnyVersion)) {
      fail(fmt::format("another version of Trireme is installed there, whose agent says '{}'; this is '{} of {}'", line,
                       kGreeting, build_name()),
           1);
    } else {
      error_lines_.add(line + "\n");
    }
  }
}

void Agent::take(const Message& message) {
  if (message.contains("out")) out_.add(message.at("out").get_ref<const std::string&>());
  if (message.contains("err")) err_.add(message.at("err").get_ref<const std::string&>());
  if (message.contains("remark"))
    events_.remark(fmt::format("host {}: {}", host_, message.at("remark").get<std::string>()));
  if (message.contains("taken")) feeding_ = true;
  if (message.contains("quiet")) quiet_ = true;
  if (message.contains("found")) {
    const Message& found = message.at("found");
    found_ = {.rendezvous = found.at("rendezvous"), .address = found.at("address"), .port = found.at("port")};
    ask_clock();
  }
  if (message.contains("clock")) {
    offset_.take(to_time(message.at("clock")), to_time(message.at("there")), Clock::now().time_since_epoch());
  }
  if (message.contains("recorded")) {
    Recorded recorded = to_recorded(message.at("recorded"));
    recorded.rank = one_of_its_own(recorded.rank);
    recorded.offset = offset_.get();
    events_.recorded(recorded);
  }
  if (message.contains("asks")) events_.asked();
  if (message.contains("alive")) {
    std::vector<Alive> alive;
    for (const Message& one : message.at("alive")) alive.push_back(to_alive(one));
    for (const Alive& one : alive) one_of_its_own(one.rank);
    events_.alive(alive);
  }
  if (message.contains("ended")) {
    std::vector<End> ended;
    for (const Message& one : message.at("ended")) ended.push_back(to_end(one));
    for (const End& end : ended) std::erase(running_, one_of_its_own(end.rank));
    events_.ended(ended);
  }
  // It says so only of ranks that it could not start.
  if (message.contains("failed")) fail(message.at("failed"), message.at("status"), Loss::not_started);
}

int Agent::one_of_its_own(int rank) const {
  if (std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end()) return rank;
  throw ProtocolError(fmt::format("it speaks of rank {}, which does not run there", rank));
}

void Agent::settle() {
  const auto now = Clock::now();
  if (reap_by_) look_at_children();
  if (failed_ || reap_by_) return;
  if (now >= heard_at_ + (greeted_ ? std::chrono::seconds(kSilence) : kConnectPatience)) {
    fail(fmt::format("there is no sign of it for {} seconds: check that it can be reached",
                     std::chrono::duration_cast<std::chrono::seconds>(now - heard_at_).count()),
         1);
  } else if (greeted_ && now >= beat_at_) {
    beat_at_ = now + kBeat;
    ask_clock();
  }
}

std::optional<Clock::time_point> Agent::wake_at() const {
  if (failed_) return std::nullopt;
  if (reap_by_) return reap_by_;
  if (!greeted_) return heard_at_ + kConnectPatience;
  return std::min(beat_at_, heard_at_ + kSilence);
}

// What is short leaves at once, even if this process is about to stop.
void Agent::send(const Message& message) {
  if (failed_ || !to_agent_) return;
  wire_->add(pack(message));
  while (wire_->pending() && is_writable(to_agent_.get())) wire_->write_some();
}

void Agent::start(const Share& share) {
  for (int rank = 0; rank < share.count; ++rank) ranks_.push_back(share.first + rank);
  running_ = ranks_;
  quiet_ = false;
  feeding_ = share.first == 0;
  send({{"start", to_message(share)}});
}

void Agent::look() {
  ask_clock();
  send({{"look", true}});
}

void Agent::tell_last(int rank, const std::optional<Record>& last) {
  std::optional<Record> there = last;
  if (there) there->shift(offset_.get());
  send({{"last", there ? to_message(*there) : Message()}, {"rank", rank}});
}

void Agent::ask_clock() { send({{"clock", Clock::now().time_since_epoch().count()}}); }

void Agent::pass_on(int signal, bool /*by_terminal*/) {
  send({{"signal", signal}});
  if (signal == SIGCONT) heard_at_ = beat_at_ = Clock::now();  // This process was stopped, and heard nobody.
}

void Agent::finish() {
  finishing_ = true;
  send({{"finish", true}});
}

std::string Agent::explain_end(int status) const {
  const std::string command = fmt::format("'{}'", fmt::join(command_, " "));
  if (greeted_) {
    const char* const when = ranks_.empty()     ? "before ranks were started there"
                             : running_.empty() ? "when its ranks had ended"
                                                : "while ranks were running there";
    return fmt::format("it is lost: its agent, {}, ended with status {} {}", command, status, when);
  }
  if (status == 127) {
    return fmt::format(
        "{} did not find its program (status 127): Trireme has to be installed there; --agent-program says "
        "where",
        command);
  }
  return fmt::format(
      "{} ended with status {} before the agent there had answered: check by hand that this command works, without "
      "asking for a password",
      command, status);
}

void Agent::fail(const std::string& why, int exit_status, Loss loss) {
  if (std::exchange(failed_, true)) return;
  while (read_errors()) continue;
  error_lines_.end();
  running_.clear();
  feeding_ = false;
  quiet_ = true;
  let_go();
  events_.failed(fmt::format("host {}: {}", host_, why), exit_status, loss);
}

}  // namespace trireme::cli
