#include "torch/checkpoint_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace trireme::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are written as numbers lie in memory");

constexpr std::string_view kMagic{"TRIREME\0", 8};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kNameBytes = 16;
constexpr std::size_t kEntryBytes = kNameBytes + 16;
constexpr std::size_t kStartBytes = kMagic.size() + 8;

/// Tables for eight bytes a step: the n-th is what a byte does to the checksum n bytes later.
constexpr auto kTables = [] {
  std::array<std::array<std::uint64_t, 256>, 8> tables{};
  for (std::uint64_t byte = 0; byte < 256; ++byte) {
    std::uint64_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xC96C5795D7870F42 : 0);
    tables[0][byte] = crc;
  }
  for (int n = 1; n < 8; ++n) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::uint64_t before = tables[n - 1][byte];
      tables[n][byte] = before >> 8 ^ tables[0][before & 255];
    }
  }
  return tables;
}();

template <typename T>
T number_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw SystemError(fmt::format("could not {} {}: {}", what, path.string(), std::generic_category().message(errno)));
}

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags) : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (number_ < 0) fail("open", path);
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int operator*() const { return number_; }

 private:
  int number_;
};

void write_all(const std::filesystem::path& path, std::string_view bytes) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  while (!bytes.empty()) {
    const ssize_t written = ::write(*file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(*file) != 0) fail("write", path);
}

// The names in a folder reach the disk.
void sync_folder(const std::filesystem::path& path) {
  const Descriptor folder(path, O_RDONLY | O_DIRECTORY);
  if (::fsync(*folder) != 0) fail("write", path);
}

}  // namespace

std::uint64_t checksum(std::string_view bytes) {
  std::uint64_t crc = ~std::uint64_t{0};
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    crc ^= number_at<std::uint64_t>(bytes, i);
    std::uint64_t next = 0;
    for (int n = 0; n < 8; ++n) next ^= kTables[7 - n][crc >> (8 * n) & 255];
    crc = next;
  }
  for (; i < bytes.size(); ++i) crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<unsigned char>(bytes[i])) & 255];
  return ~crc;
}

std::string seal(const Sections& sections) {
  const std::size_t header_bytes = kStartBytes + sections.size() * kEntryBytes + 8;
  std::size_t total = header_bytes;
  for (const auto& [name, content] : sections) total += content.size();

  std::string bytes;
  bytes.reserve(total);
  bytes += kMagic;
  append(bytes, kVersion);
  append(bytes, static_cast<std::uint32_t>(header_bytes));
  for (const auto& [name, content] : sections) {
    std::string padded = name;
    padded.resize(kNameBytes);
    bytes += padded;
    append(bytes, static_cast<std::uint64_t>(content.size()));
    append(bytes, checksum(content));
  }
  append(bytes, checksum(bytes));
  for (const auto& [name, content] : sections) bytes += content;
  return bytes;
}

Sections unseal(std::string_view bytes) {
  if (bytes.size() < kStartBytes + 8) {
    throw Damaged(fmt::format("it has only {} bytes: it was cut off, or not written to its end", bytes.size()));
  }
  if (!bytes.starts_with(kMagic)) throw Damaged("it does not begin as a checkpoint of Trireme does");
  const auto version = number_at<std::uint32_t>(bytes, kMagic.size());
  const std::size_t header_bytes = number_at<std::uint32_t>(bytes, kMagic.size() + 4);
  if (header_bytes < kStartBytes + 8 || (header_bytes - kStartBytes - 8) % kEntryBytes != 0) {
    throw Damaged("its header is damaged: its length is wrong");
  }
  if (header_bytes > bytes.size()) {
    throw Damaged(
        fmt::format("its header should have {} bytes, but the file ends after {}", header_bytes, bytes.size()));
  }
  if (checksum(bytes.substr(0, header_bytes - 8)) != number_at<std::uint64_t>(bytes, header_bytes - 8)) {
    throw Damaged("its header is damaged: the checksum is wrong");
  }
  if (version != kVersion) {
    throw UsageError(
        fmt::format("it is of version {} of the format, but this Trireme reads version {}: use the one that "
                    "wrote it, or move the file away",
                    version, kVersion));
  }
  Sections sections;
  std::string_view rest = bytes.substr(header_bytes);
  for (std::size_t at = kStartBytes; at + 8 < header_bytes; at += kEntryBytes) {
    const std::string_view padded = bytes.substr(at, kNameBytes);
    const std::string name(padded.substr(0, padded.find('\0')));
    const auto length = number_at<std::uint64_t>(bytes, at + kNameBytes);
    if (length > rest.size()) {
      throw Damaged(fmt::format("the file is cut off: section '{}' should have {} bytes, but only {} are left", name,
                                length, rest.size()));
    }
    const std::string_view content = rest.substr(0, length);
    if (checksum(content) != number_at<std::uint64_t>(bytes, at + kNameBytes + 8)) {
      throw Damaged(fmt::format("section '{}' is damaged: its checksum is wrong", name));
    }
    sections[name] = content;
    rest.remove_prefix(length);
  }
  if (!rest.empty()) throw Damaged(fmt::format("there are {} bytes too many at its end", rest.size()));
  return sections;
}

std::string read_file(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(*file, &status) != 0) fail("read", path);
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(*file, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path aside = path;
  aside += kAside;
  try {
    write_all(aside, bytes);
    if (::rename(aside.c_str(), path.c_str()) != 0) fail("rename what was written to", path);
  } catch (const SystemError&) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_folder(path.parent_path());
}

void make_folder(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> above;  // of those that are new
  for (auto each = std::filesystem::absolute(path); !std::filesystem::exists(each); each = each.parent_path()) {
    above.push_back(each.parent_path());
  }
  std::filesystem::create_directories(path);
  for (const auto& each : above) sync_folder(each);
}

}  // namespace trireme::detail
