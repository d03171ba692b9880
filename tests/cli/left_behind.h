// What a run must not leave behind on this machine: processes, files of shared memory, and others.
#pragma once

#include "support/launched.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace trireme {

inline std::set<std::string> shared_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (contains(name, "trireme")) names.insert(name);
  }
  return names;
}

// Files in a folder, but for those of the thread sanitizer, which a program that is killed as it starts can't remove.
inline std::set<std::string> files_in(const TemporaryFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / ".")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("tsan.rodata.")) names.insert(name);
  }
  return names;
}

// Processes that were started by this path.
inline std::vector<std::string> running(const std::string& program) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string command = read_whole(entry.path() / "cmdline");
    if (contains(command, program)) found.push_back(entry.path().filename().string() + ": " + command);
  }
  return found;
}

}  // namespace trireme
