// Any text is a schedule or a UsageError that says where it is wrong; and a schedule's text gives the same schedule.
#include "trireme/program.h"

#include "trireme/error.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const trireme::Schedule schedule = trireme::parse_schedule(text, "fuzz");
    const std::string again = trireme::to_text(schedule);
    if (trireme::to_text(trireme::parse_schedule(again, "fuzz")) != again) std::abort();
  } catch (const trireme::UsageError& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
  return 0;
}
