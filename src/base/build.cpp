#include "base/build.h"

namespace trireme {
namespace {

#ifdef __clang__
constexpr std::string_view kName = "Trireme " TRIREME_VERSION ", Clang " __clang_version__;
#else
constexpr std::string_view kName = "Trireme " TRIREME_VERSION ", GCC " __VERSION__;
#endif

}  // namespace

std::string_view build_name() { return kName.substr(0, 47); }

}  // namespace trireme
