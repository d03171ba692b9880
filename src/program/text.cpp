// The text form of a schedule, and the reader that gives the schedule back.
//
//   algorithm my_ring        what people call it
//   collective allreduce     what it promises
//   ranks 3
//   blocks 3
//   root 0                   only for a collective with a root
//   servers 1                only if the last ranks just serve
//
//   rank 0
//     send 0 to 1
//     add 2 from 2
//     receive 1..2 from 2    a run of neighbouring blocks, both ends included
//
// '#' starts a comment; blank lines and indentation are free. Every rank has its section, in any order.
#include "trireme/error.h"
#include "trireme/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <set>

namespace trireme {
namespace {

// A schedule from a file is bounded, so that a slip of the finger does not ask for all memory.
constexpr int kMostBlocks = 1 << 24;
constexpr int kMostRanksInText = 1 << 20;

bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// What a reader takes for one word.
bool is_word(std::string_view text) {
  return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) { return c == '#' || is_space(c); });
}

void append_program(std::string& text, const Program& program, int rank) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, "rank {}\n", rank);
  for (const Step& step : program.steps) {
    fmt::format_to(out, "  {} {}", to_string(step.action), step.run.first);
    if (step.run.count != 1) fmt::format_to(out, "..{}", step.run.end() - 1);
    fmt::format_to(out, " {} {}\n", step.action == Action::send ? "to" : "from", step.peer);
  }
}

class Reader {
 public:
  Reader(std::string_view text, std::string_view source) : rest_(text), source_(source) {}

  Schedule read() {
    while (next_line()) {
      if (at_end()) continue;
      const std::string_view word = take_word();
      if (word == "rank") {
        start_rank();
      } else if (word == "send" || word == "receive" || word == "add") {
        read_step(word);
      } else {
        read_header(word);
      }
      if (!at_end()) {
        token_ = at_;
        fail("the end of the line");
      }
    }
    return finish();
  }

 private:
  bool next_line() {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    line_ = line_.substr(0, line_.find('#'));
    at_ = 0;
    ++line_number_;
    return true;
  }

  void skip_spaces() {
    while (at_ < line_.size() && is_space(line_[at_])) ++at_;
  }

  bool at_end() {
    skip_spaces();
    return at_ == line_.size();
  }

  std::string_view take_word() {
    skip_spaces();
    token_ = at_;
    while (at_ < line_.size() && !is_space(line_[at_])) ++at_;
    return line_.substr(token_, at_ - token_);
  }

  // A number in [least, most]; `what` names it for the message.
  int take_number(std::string_view what, int least, int most) {
    skip_spaces();
    token_ = at_;
    int number = 0;
    const auto [end, error] = std::from_chars(line_.data() + at_, line_.data() + line_.size(), number);
    if (error == std::errc::result_out_of_range) fail(fmt::format("{} from {} to {}", what, least, most));
    if (error != std::errc()) fail(what);
    at_ = static_cast<std::size_t>(end - line_.data());
    if (number < least || number > most) fail(fmt::format("{} from {} to {}", what, least, most));
    return number;
  }

  [[noreturn]] void fail(std::string_view expected) const {
    std::size_t end = token_;
    while (end < line_.size() && !is_space(line_[end])) ++end;
    const std::string_view found = line_.substr(std::min(token_, line_.size()), end - token_);
    throw UsageError(fmt::format("{}:{}:{}: expected {}, found {}", source_, line_number_, token_ + 1, expected,
                                 found.empty() ? "the end of the line" : fmt::format("'{}'", found)));
  }

  [[noreturn]] void fail_whole(std::string_view message) const {
    throw UsageError(fmt::format("{}:{}:{}: {}", source_, line_number_, token_ + 1, message));
  }

  void read_header(std::string_view word) {
    if (rank_ >= 0) fail("send, receive, add or rank");
    if (!headers_.insert(word).second) fail_whole(fmt::format("there is a line '{}' already", word));
    if (word == "algorithm") {
      schedule_.algorithm = take_word();
      if (schedule_.algorithm.empty()) fail("the algorithm's name");
    } else if (word == "collective") {
      const std::string_view name = take_word();
      try {
        schedule_.collective = parse_collective(name);
      } catch (const UsageError& error) {
        fail_whole(error.what());
      }
    } else if (word == "ranks") {
      ranks_ = take_number("a number of ranks", 1, kMostRanksInText);
    } else if (word == "blocks") {
      blocks_ = take_number("a number of blocks", 1, kMostBlocks);
    } else if (word == "root") {
      schedule_.root = take_number("the root's rank", 0, kMostRanksInText - 1);
    } else if (word == "servers") {
      schedule_.servers = take_number("a number of servers", 0, kMostRanksInText - 1);
    } else {
      fail("algorithm, collective, ranks, blocks, root, servers or rank");
    }
  }

  void start_rank() {
    if (ranks_ == 0) fail("a line 'ranks P' before the first rank");
    if (blocks_ == 0) fail("a line 'blocks B' before the first rank");
    if (schedule_.programs.empty()) {
      schedule_.programs.assign(ranks_, Program{.blocks = blocks_});
      seen_.assign(ranks_, false);
    }
    rank_ = take_number("a rank", 0, ranks_ - 1);
    if (seen_[rank_]) fail_whole(fmt::format("rank {} has a section already", rank_));
    seen_[rank_] = true;
  }

  void read_step(std::string_view word) {
    if (rank_ < 0) fail("a line 'rank R' before the first step");
    const int first = take_number("a block", 0, blocks_ - 1);
    int last = first;
    if (line_.substr(at_).starts_with("..")) {
      at_ += 2;
      last = take_number("the run's last block", first, blocks_ - 1);
    }
    const std::string_view expected = word == "send" ? "to" : "from";
    if (take_word() != expected) fail(fmt::format("'{}'", expected));
    const int peer = take_number("the peer's rank", 0, ranks_ - 1);
    if (peer == rank_) fail_whole(fmt::format("rank {} names itself as its peer", rank_));
    const Run run(first, last - first + 1);
    Program& program = schedule_.programs[rank_];
    if (word == "send") program.send(run, peer);
    if (word == "receive") program.receive(run, peer);
    if (word == "add") program.add(run, peer);
  }

  Schedule finish() {
    token_ = 0;
    line_number_ = std::max(line_number_, 1);
    if (schedule_.programs.empty()) fail_whole("the file ends before the first 'rank' section");
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!seen_[rank]) fail_whole(fmt::format("rank {} has no section", rank));
    }
    if (schedule_.servers >= ranks_) fail_whole("servers must be fewer than ranks");
    if (schedule_.root >= schedule_.workers())
      fail_whole(fmt::format("there is no rank {} to be root", schedule_.root));
    if (schedule_.algorithm.empty()) schedule_.algorithm = source_;
    return std::move(schedule_);
  }

  std::string_view rest_;
  std::string_view source_;
  std::string_view line_;
  std::size_t at_ = 0;
  std::size_t token_ = 0;  // where the word or number read last begins
  int line_number_ = 0;
  int ranks_ = 0;
  int blocks_ = 0;
  int rank_ = -1;
  std::set<std::string_view> headers_;  // read already
  std::vector<bool> seen_;              // sections read already
  Schedule schedule_;
};

}  // namespace

std::string to_text(const Program& program, int rank) {
  std::string text;
  append_program(text, program, rank);
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  auto out = std::back_inserter(text);
  // A name that is no word, such as a path with spaces, is left out: the reader takes its source's name instead.
  if (is_word(schedule.algorithm)) fmt::format_to(out, "algorithm {}\n", schedule.algorithm);
  fmt::format_to(out, "collective {}\nranks {}\nblocks {}\n", to_string(schedule.collective), schedule.ranks(),
                 schedule.blocks());
  if (schedule.root != 0) fmt::format_to(out, "root {}\n", schedule.root);
  if (schedule.servers != 0) fmt::format_to(out, "servers {}\n", schedule.servers);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    text += '\n';
    append_program(text, schedule.programs[rank], rank);
  }
  return text;
}

Schedule parse_schedule(std::string_view text, std::string_view source) { return Reader(text, source).read(); }

}  // namespace trireme
