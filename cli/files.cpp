#include "cli/files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "trireme/error.h"

namespace trireme::cli {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw UsageError(fmt::format("{} is a folder, not a file", path));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (file) content << file.rdbuf();
  if (!file) throw UsageError(fmt::format("{} can't be read: {}", path, std::strerror(errno)));
  return content.str();
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) fail(EISDIR);
  // A device or pipe is written straight; a file gets its content by a rename.
  const bool plain = !fs::exists(path_, ignored) || fs::is_regular_file(path_, ignored);
  written_ = plain ? fmt::format("{}.{}.part", path_, ::getpid()) : path_;
  std::FILE* const file = std::fopen(written_.c_str(), plain ? "wx" : "w");
  if (file == nullptr) {
    const int error = errno;
    written_.clear();
    fail(error);
  }
  std::fclose(file);
}

OutputFile::~OutputFile() {
  if (!written_.empty() && written_ != path_) std::remove(written_.c_str());
}

void OutputFile::save(const std::string& content) {
  std::FILE* const file = std::fopen(written_.c_str(), "w");
  if (file == nullptr) fail(errno);
  const bool complete = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  if (std::fclose(file) != 0 || !complete) fail(errno);
  if (written_ != path_ && std::rename(written_.c_str(), path_.c_str()) != 0) fail(errno);
  written_.clear();
}

void OutputFile::fail(int error) const {
  throw UsageError(fmt::format("{} can't be written: {}", path_, std::strerror(error)));
}

}  // namespace trireme::cli
