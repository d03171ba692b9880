#include "rendezvous/notice.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace trireme::rendezvous {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw SystemError(fmt::format("the notice {}, by which the ranks of this host find each other, can't be {}: {}", path,
                                what, std::generic_category().message(errno)));
}

std::string folder() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe): it stays as it is
  struct stat info {};
  const bool usable = runtime != nullptr && *runtime == '/' && ::stat(runtime, &info) == 0 && S_ISDIR(info.st_mode) &&
                      info.st_uid == ::getuid();
  return usable ? runtime : "/tmp";
}

// Job names are other people's: whatever they hold, they become names of files.
std::string as_file_name(std::string_view job) {
  constexpr std::size_t kMost = 100;
  std::string name(job.substr(0, kMost));
  bool changed = job.size() > kMost;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_') continue;
    c = '_';
    changed = true;
  }
  if (changed) name += fmt::format("-{:x}", std::hash<std::string_view>()(job));
  return name;
}

bool is_locked_by_another(const Descriptor& file) { return ::flock(file.get(), LOCK_SH | LOCK_NB) != 0; }

// One that was left behind, unless another has come in its place.
void take_away(const Descriptor& file, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  if (::fstat(file.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
      opened.st_ino == named.st_ino) {
    ::unlink(path.c_str());
  }
}

std::string prefix() { return fmt::format("trireme-{}-", ::getuid()); }

// What is left of other jobs, all of whose ranks were killed. One that is just being written is not locked for a
// moment, so that young ones stay.
void sweep(const std::filesystem::path& folder) {
  constexpr std::time_t kYoungSeconds = 60;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string path = entry.path();
    if (!entry.path().filename().string().starts_with(prefix()) || !entry.is_regular_file(ignored)) continue;
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info {};
    if (!file || ::fstat(file.get(), &info) != 0 || info.st_uid != ::getuid()) continue;
    if (std::time(nullptr) - info.st_mtime > kYoungSeconds && !is_locked_by_another(file)) take_away(file, path);
  }
}

std::string whole(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

struct Process {
  int parent = 0;
  std::string began;
};

// As the kernel tells it: "number (name) state parent ..."; the 22nd is when it began.
Process look_at(int pid) {
  const std::string stat = whole(fmt::format("/proc/{}/stat", pid));
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  Process process;
  std::string skipped;
  fields >> skipped >> process.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> process.began;
  return process;
}

bool has_variable(int pid, const char* variable) {
  const std::string all = '\0' + whole(fmt::format("/proc/{}/environ", pid));
  return all.find('\0' + fmt::format("{}=", variable)) != std::string::npos;
}

}  // namespace

std::string notice_path(std::string_view job) { return fmt::format("{}/{}{}", folder(), prefix(), as_file_name(job)); }

Notice::Notice(std::string path, const Posted& posted) : path_(std::move(path)) {
  if (read_notice(path_)) {
    throw UsageError(fmt::format(
        "another process of this job is rank 0 already, as its notice {} says: give each process a rank of its own",
        path_));
  }
  sweep(std::filesystem::path(path_).parent_path());
  std::string draft = fmt::format("{}.{}", path_, ::getpid());
  ::unlink(draft.c_str());
  file_ = Descriptor(::open(draft.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text = fmt::format("{}\n{}\n", posted.port, posted.secret.text());
  if (!file_ || ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(draft.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(draft.c_str());
    errno = error;
    fail(path_, "written");
  }
}

Notice::~Notice() { ::unlink(path_.c_str()); }

std::optional<Posted> read_notice(const std::string& path) {
  // Anybody may have put something there: to open a pipe would wait for who writes to it.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::nullopt;
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) fail(path, "read");
  if (info.st_uid != ::getuid()) {
    throw UsageError(
        fmt::format("{} belongs to another user, so it is not believed: remove it, or set MASTER_ADDR and "
                    "MASTER_PORT for all ranks",
                    path));
  }
  if (!S_ISREG(info.st_mode)) {
    throw UsageError(fmt::format(
        "{} is no file, so it is not believed: remove it, or set MASTER_ADDR and MASTER_PORT for all ranks", path));
  }
  if (!is_locked_by_another(file)) {
    take_away(file, path);
    return std::nullopt;
  }
  std::array<char, 256> buffer{};
  const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
  std::istringstream text(std::string(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))));
  Posted posted;
  if (!(text >> posted.port) || posted.port == 0) return std::nullopt;
  if (std::string secret; text >> secret) posted.secret = Secret(std::move(secret));
  return posted;
}

std::string name_of_starter(const char* variable) {
  int pid = ::getppid();
  while (pid > 1 && has_variable(pid, variable)) pid = look_at(pid).parent;
  return fmt::format("{}-{}", pid, look_at(pid).began);
}

}  // namespace trireme::rendezvous
