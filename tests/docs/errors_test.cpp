// docs/errors.md says what the program says: the words of its messages are found in the strings of the sources.
//
// Its messages are the first column of the tables whose head is "message" or "in brackets", and all that is quoted with
// `>`. In them italics stand for what differs, and dots for what is left out. What is between dots, colons and
// semicolons is a clause. With {} for italics it has to be a part of some string in src/, cli/ or include/, where {}
// stands for a format's fields, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::test {
namespace {

struct Message {
  int line = 0;
  std::string text;
};

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

/// With one space, or one {}, where there were several.
std::string tidy(std::string_view text) {
  std::string tidied;
  for (const char c : text) {
    if (is_space(c) && tidied.ends_with(' ')) continue;
    tidied += is_space(c) ? ' ' : c;
    if (tidied.ends_with("{}{}")) tidied.resize(tidied.size() - 2);
  }
  return tidied;
}

/// A format with {} for each of its fields, however they are to be written.
std::string with_plain_fields(std::string_view format) {
  std::string plain;
  int depth = 0;
  for (const char c : format) {
    if (c == '}' && depth > 0) --depth;
    if (depth == 0) plain += c;
    if (c == '{') ++depth;
  }
  return tidy(plain);
}

/// The strings of a C++ source, as formats; those that stand side by side are one.
class Strings {
 public:
  explicit Strings(std::string_view source) : rest_(source) {
    while (!rest_.empty()) step();
    close();
  }

  const std::vector<std::string>& all() const { return all_; }

 private:
  void step() {
    if (rest_.starts_with("//")) return skip(rest_.find('\n'));
    if (rest_.starts_with("/*")) return skip(rest_.find("*/", 2) + 2);
    if (rest_.starts_with("R\"")) return take_raw();
    if (rest_.front() == '"') return take_quoted();
    const bool in_number = rest_.front() == '\'' && std::isalnum(static_cast<unsigned char>(last_)) != 0;
    if (rest_.front() == '\'' && !in_number) return skip_character();
    if (!is_space(rest_.front())) close();
    last_ = rest_.front();
    skip(1);
  }

  void take_raw() {
    const std::string end = ")" + std::string(rest_.substr(2, rest_.find('(') - 2)) + "\"";
    const std::size_t begin = rest_.find('(') + 1;
    open();
    all_.back() += rest_.substr(begin, rest_.find(end) - begin);
    skip(rest_.find(end) + end.size());
  }

  void take_quoted() {
    open();
    for (skip(1); !rest_.empty() && rest_.front() != '"'; skip(1)) {
      const bool escaped = rest_.front() == '\\';
      if (escaped) skip(1);
      if (rest_.empty()) return;
      all_.back() += escaped && is_letter(rest_.front()) ? ' ' : rest_.front();
    }
    skip(1);
  }

  void skip_character() {
    close();
    for (skip(1); !rest_.empty() && rest_.front() != '\''; skip(1)) {
      if (rest_.front() == '\\') skip(1);
    }
    skip(1);
    last_ = '\'';
  }

  void skip(std::size_t characters) { rest_.remove_prefix(std::min(characters, rest_.size())); }

  void open() {
    if (!open_) all_.emplace_back();
    open_ = true;
  }

  void close() {
    if (open_) all_.back() = with_plain_fields(all_.back());
    open_ = false;
  }

  std::string_view rest_;
  std::vector<std::string> all_;
  bool open_ = false;  // What follows may be more of the last one.
  char last_ = ' ';
};

/// The first cell of a table's row; a bar in it is written as \|.
std::string first_cell(const std::string& row) {
  std::size_t end = row.find('|', 1);
  while (end != std::string::npos && row[end - 1] == '\\') end = row.find('|', end + 1);
  return row.substr(1, end - 1);
}

std::vector<Message> messages_in(const std::string& document) {
  std::vector<Message> messages;
  std::istringstream lines(document);
  bool in_quotation = false;
  bool in_table = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const bool quoted = line.starts_with("> ");
    if (quoted && in_quotation) messages.back().text += line.substr(1);
    if (quoted && !in_quotation) messages.push_back({number, line.substr(1)});
    in_quotation = quoted;
    const bool head = line.starts_with("| message |") || line.starts_with("| in brackets |");
    in_table = line.starts_with('|') && (head || in_table);
    if (in_table && !head && !line.starts_with("| ---")) messages.push_back({number, first_cell(line)});
  }
  return messages;
}

/// Without the spaces and {} around it.
std::string trimmed(std::string_view text) {
  while (true) {
    if (text.starts_with(' ')) {
      text.remove_prefix(1);
    } else if (text.ends_with(' ')) {
      text.remove_suffix(1);
    } else if (text.starts_with("{}")) {
      text.remove_prefix(2);
    } else if (text.ends_with("{}")) {
      text.remove_suffix(2);
    } else {
      return std::string(text);
    }
  }
}

std::vector<std::string> clauses_of(const std::string& message) {
  std::string text;
  bool italic = false;
  for (const char c : message) {
    if (c == '*') {
      if (!italic) text += "{}";
      italic = !italic;
    } else if (!italic) {
      text += c;
    }
  }
  text = tidy(text + ' ');
  std::vector<std::string> clauses;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end =
        std::min({rest.find("..."), rest.find(". "), rest.find(": "), rest.find("; "), rest.size()});
    const std::string clause = trimmed(rest.substr(0, end));
    if (std::any_of(clause.begin(), clause.end(), is_letter)) clauses.push_back(clause);
    rest.remove_prefix(std::min(rest.size(), end + (rest.substr(end).starts_with("...") ? 3 : 2)));
  }
  return clauses;
}

/// What is wrong with each message of the document, a line each.
std::string stale(const std::string& document, const std::vector<std::string>& strings) {
  std::string wrong;
  for (const auto& [line, message] : messages_in(document)) {
    const auto complain = [&, line = line](const std::string& what) {
      wrong += "docs/errors.md:" + std::to_string(line) + ": " + what + "\n";
    };
    const std::vector<std::string> clauses = clauses_of(message);
    const auto says_something = [](const std::string& clause) { return clause.find(' ') != std::string::npos; };
    if (std::none_of(clauses.begin(), clauses.end(), says_something)) complain("fewer than two words that are fixed");
    for (const std::string& clause : clauses) {
      const auto has_it = [&](const std::string& text) { return text.find(clause) != std::string::npos; };
      if (std::none_of(strings.begin(), strings.end(), has_it)) complain("no string has '" + clause + "'");
    }
  }
  return wrong;
}

std::string whole(const std::filesystem::path& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

TEST(Errors, AreTheProgramsOwnWords) {
  const std::filesystem::path project = TRIREME_PROJECT;
  std::vector<std::string> strings;
  for (const char* folder : {"src", "cli", "include"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(project / folder)) {
      const std::string kind = entry.path().extension();
      if (kind != ".cpp" && kind != ".h") continue;
      const Strings found(whole(entry.path()));
      strings.insert(strings.end(), found.all().begin(), found.all().end());
    }
  }
  const std::string document = whole(project / "docs" / "errors.md");
  EXPECT_GT(messages_in(document).size(), 100U);
  const std::string wrong = stale(document, strings);
  EXPECT_TRUE(wrong.empty()) << wrong << "{} stands for what is in italics, or a format's fields.";
}

TEST(Errors, StringsAreFoundAsTheCompilerSeesThem) {
  const Strings strings(R"SOURCE(
    // "not this"
    /* nor "this" */
    fail('"', 1'000, "a wrapped "  // here
                     "string of {:.1f} and {:>{}} bytes", R"(raw "words")");
    say("a \"quoted\" one\n" + name + " and another");
  )SOURCE");
  const std::vector<std::string> expected = {"a wrapped string of {} and {} bytes", "raw \"words\"",
                                             "a \"quoted\" one ", " and another"};
  EXPECT_EQ(strings.all(), expected);
}

TEST(Errors, AreTakenFromTablesAndQuotations) {
  const std::string document =
      "| field | what |\n| --- | --- |\n| `status` | no message |\n\n"
      "| message | what to do |\n| --- | --- |\n| one \\| two | this |\n| three | that |\n\n"
      "> *rank 1* is gone: it\n> left\n";
  const std::vector<Message> messages = messages_in(document);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0].text, " one \\| two ");
  EXPECT_EQ(messages[1].line, 8);
  EXPECT_EQ(clauses_of(messages[2].text), (std::vector<std::string>{"is gone", "it left"}));
}

TEST(Errors, ThatNobodySaysAnyMoreAreFound) {
  const std::vector<std::string> strings = {"{} {} is not one of {} ranks", "{} is '{}': {}", "it has to be 0"};
  const auto stale_row = [&](const std::string& row) {
    return stale("| message | what to do |\n| --- | --- |\n| " + row + " | mend it |\n", strings);
  };
  EXPECT_EQ(stale_row("*root* *7* is not one of *4* ranks"), "");
  EXPECT_EQ(stale_row("*RANK* is '*4*': it has to be 0"), "");
  EXPECT_EQ(stale_row("*root* ... is not ... of *4* ranks"), "");
  EXPECT_EQ(stale_row("there is no rank *7* of *4*"), "docs/errors.md:3: no string has 'there is no rank {} of'\n");
  EXPECT_EQ(stale_row("root 7 is not one of 4 ranks"),
            "docs/errors.md:3: no string has 'root 7 is not one of 4 ranks'\n");
  EXPECT_EQ(stale_row("*root 7 is not one of 4 ranks*"), "docs/errors.md:3: fewer than two words that are fixed\n");
}

}  // namespace
}  // namespace trireme::test
