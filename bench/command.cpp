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

std::string one_thread() {
  static const std::string variables = [] {
    const std::string threads = "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1";
    const std::string said =
        output_of(fmt::format("OPENBLAS_VERBOSE=2 '{}' run -n 1 '{}/training_step' alone 8 1 1 1 2>&1", TRIREME_PROGRAM,
                              TRIREME_BENCH_FOLDER));
    if (said.find("Core: Prescott") == std::string::npos) return threads;
    const auto has = [](const char* feature) {
      return !output_of(fmt::format("grep -m 1 -w {} /proc/cpuinfo", feature)).empty();
    };
    const char* const kind = has("avx512f") ? "SkylakeX" : has("avx2") ? "Haswell" : "Prescott";
    fmt::print(stderr, "trireme_bench: OpenBLAS does not know this processor; all are told OPENBLAS_CORETYPE={}\n",
               kind);
    return fmt::format("{} OPENBLAS_CORETYPE={}", threads, kind);
  }();
  return variables;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace trireme
