#include "rendezvous/guard.h"

#include "rendezvous/socket.h"
#include "trireme/error.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace trireme::rendezvous {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// The first line of a file that nobody but its owner may read.
std::string read_private_file(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw UsageError(fmt::format("TRIREME_SECRET_FILE is '{}', which can't be read: {}", path, reason(errno)));
  struct stat about {};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) {
    throw UsageError(fmt::format("TRIREME_SECRET_FILE is '{}', which is no file", path));
  }
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw UsageError(
        fmt::format("TRIREME_SECRET_FILE is '{}', which others may read or write: run 'chmod 600 {}', and make a new "
                    "secret if they might have done so",
                    path, path));
  }
  std::array<char, 4096> text{};
  const ssize_t bytes = ::read(file.get(), text.data(), text.size());
  if (bytes < 0)
    throw UsageError(fmt::format("TRIREME_SECRET_FILE is '{}', which can't be read: {}", path, reason(errno)));
  const std::string all(text.data(), static_cast<std::size_t>(bytes));
  return all.substr(0, all.find_first_of("\r\n"));
}

Secret read_secret(const Lookup& lookup) {
  const auto text = lookup("TRIREME_SECRET");
  const auto file = lookup("TRIREME_SECRET_FILE");
  if (text && file) throw UsageError("TRIREME_SECRET and TRIREME_SECRET_FILE are both set: keep one of them");
  if (!text && !file) return {};
  std::string found = text ? *text : read_private_file(*file);
  try {
    return Secret(std::move(found));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", text ? "TRIREME_SECRET" : "TRIREME_SECRET_FILE", error.what()));
  }
}

bool read_encrypt(const Lookup& lookup) {
  const std::string value = lookup("TRIREME_ENCRYPT").value_or("0");
  if (value == "1") return true;
  if (value == "0" || value.empty()) return false;
  throw UsageError(fmt::format("TRIREME_ENCRYPT is '{}'; it may be 0 or 1", value));
}

}  // namespace

Guard guard_from_environment(const Lookup& lookup) {
  const Guard guard{.secret = read_secret(lookup), .encrypt = read_encrypt(lookup)};
  if (guard.encrypt && !guard.secret) {
    throw UsageError(
        "TRIREME_ENCRYPT is 1, but there is no secret to encrypt with: set TRIREME_SECRET or TRIREME_SECRET_FILE to "
        "the "
        "same for all ranks, or start them with 'trireme run --encrypt'");
  }
  return guard;
}

Guard guard_at(const Place& place, const Lookup& lookup) {
  if (place.notice.empty()) return guard_from_environment(lookup);
  return {.secret = read_secret(lookup), .encrypt = read_encrypt(lookup)};
}

std::vector<std::string> variables_for_ranks(const Guard& guard, const Lookup& lookup) {
  std::vector<std::string> variables{fmt::format("TRIREME_ENCRYPT={}", guard.encrypt ? 1 : 0)};
  if (!lookup("TRIREME_SECRET_FILE")) variables.push_back("TRIREME_SECRET=" + guard.secret.text());
  return variables;
}

Guard guard_for_ranks(const Lookup& lookup) {
  Guard guard{.secret = read_secret(lookup), .encrypt = read_encrypt(lookup)};
  if (!guard.secret) guard.secret = Secret::make();
  return guard;
}

}  // namespace trireme::rendezvous
