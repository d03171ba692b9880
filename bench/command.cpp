#include "command.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace trireme {

std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (!pipe) throw SystemError(fmt::format("can't run '{}'", command));
  std::string output;
  std::array<char, 4096> bytes{};
  for (std::size_t count = 0; (count = std::fread(bytes.data(), 1, bytes.size(), pipe.get())) > 0;) {
    output.append(bytes.data(), count);
  }
  return output;
}

std::string python() { return std::filesystem::exists("/usr/bin/python3") ? "/usr/bin/python3" : "python3"; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace trireme
