#include "cli/files.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

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

namespace {

// The file itself, where the path is a link to it: the link stays. Devices and pipes are named as they are.
std::string followed(const std::string& path) {
  std::error_code ignored;
  const bool special = path.starts_with("/dev/") || path.starts_with("/proc/");
  if (special || !fs::is_symlink(path, ignored)) return path;
  return fs::weakly_canonical(path, ignored).string();
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(followed(path)) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) fail(EISDIR);
  if (fs::exists(path_, ignored)) {
    if (::access(path_.c_str(), W_OK) != 0) fail(errno);
    replace_ = fs::is_regular_file(path_, ignored) && !path_.starts_with("/dev/") && !path_.starts_with("/proc/");
  }
  const fs::path folder = fs::path(path_).parent_path();
  if (replace_ && ::access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) fail(errno);
}

void OutputFile::save(const std::string& content) const {
  const std::string written = replace_ ? fmt::format("{}.{}.part", path_, ::getpid()) : path_;
  std::FILE* const file = std::fopen(written.c_str(), "w");
  if (file == nullptr) fail(errno);
  const bool complete = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const bool closed = std::fclose(file) == 0;
  if (complete && closed && (!replace_ || std::rename(written.c_str(), path_.c_str()) == 0)) return;
  const int error = errno;
  if (replace_) std::remove(written.c_str());
  fail(error);
}

void OutputFile::fail(int error) const {
  throw UsageError(fmt::format("{} can't be written: {}", path_, std::strerror(error)));
}

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace trireme::cli
