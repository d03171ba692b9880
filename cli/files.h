// Reading whole files, and writing them whole or not at all.
#pragma once

#include <string>

namespace trireme::cli {

/// The file's content. Throws UsageError if it can't be read.
std::string read_file(const std::string& path);

/// A file to be written when the work is done. It is opened at once, so that a path that can't be written fails before
/// the work begins; until save() the path keeps what it had.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws UsageError if not all of it could be written.
  void save(const std::string& content);

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_;
  std::string written_;  // where the content goes first; empty once it is in place
};

}  // namespace trireme::cli
