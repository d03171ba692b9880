// Reading whole files, writing them whole or not at all, and JSON on stdout.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace trireme::cli {

/// The file's content. Throws UsageError if it can't be read.
std::string read_file(const std::string& path);

/// A file to be written when the work is done. A path that can't be written is refused at once, before the work begins;
/// until save() the path keeps what it had, and then it has all of the new content or still the old.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);

  /// Throws UsageError if not all of it could be written.
  void save(const std::string& content) const;

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  bool replace_ = true;  // a plain file gets its content by a rename; a device or pipe is written straight
};

/// To stdout; bytes that are no UTF-8 are replaced.
void print_json(const nlohmann::ordered_json& json);

}  // namespace trireme::cli
