// A checkpoint as bytes and as a file.
//
//   "TRIREME" 0 | version u32 | header bytes u32 | for each section: name[16] length u64 checksum u64 | checksum u64
//   | the sections, one after the other
//
// The header's own checksum is over all before it; all numbers are little-endian. So each byte is covered by a
// checksum, and the lengths are known to be right before anything is made room for.
#pragma once

#include "trireme/error.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace trireme::detail {

/// Bytes that are not, or no more, a checkpoint. The message is the reason alone.
class Damaged : public Error {
 public:
  using Error::Error;
};

using Sections = std::map<std::string, std::string_view>;

/// CRC-64/XZ. Finds every error within 64 bits, and others but for one in 2^64.
std::uint64_t checksum(std::string_view bytes);

std::string seal(const Sections& sections);

/// What seal() was given, as views of `bytes`. Throws Damaged; UsageError if it is whole, but of another version.
Sections unseal(std::string_view bytes);

/// All of a file. Throws SystemError.
std::string read_file(const std::filesystem::path& path);

/// When it returns, the file is there whole, even if the machine stops then; until then, what was there before. It is
/// written under another name first, which ends in kAside. Throws SystemError.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// Makes a folder and those above it, where they are not there; their names reach the disk. Throws SystemError, or what
/// the standard library does.
void make_folder(const std::filesystem::path& path);

inline constexpr std::string_view kAside = ".part";

}  // namespace trireme::detail
