// Whatever ranks tell each other when they start, it is read as it was meant, or an error names who said it.
#include "communicator/announcement.h"
#include "communicator/tuning.h"
#include "require.h"
#include "trireme/error.h"

#include <cstdint>
#include <string>

namespace trireme {
namespace {

template <typename Said>
void read_as(const std::string& text) {
  try {
    const Said said = Said::parse(text, 3);
    const std::string again = said.to_text();
    require(Said::parse(again, 3).to_text() == again);
  } catch (const ProtocolError& error) {
    require(std::string(error.what()).starts_with("rank 3 "));
  }
}

void read_as_tuning(const std::string& text) {
  try {
    const std::string again = Tuning::parse(text, "here").to_json();
    require(Tuning::parse(again, "here").to_json() == again);
  } catch (const UsageError& error) {
    require(std::string(error.what()).starts_with("here: "));
  }
}

}  // namespace
}  // namespace trireme

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  trireme::read_as<trireme::Announcement>(text);
  trireme::read_as<trireme::Surroundings>(text);
  trireme::read_as_tuning(text);
  return 0;
}
