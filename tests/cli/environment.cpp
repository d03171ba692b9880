// What all tests of the program have in their environment: runs that fail leave no reports in the folder of the tests.
#include <cstdlib>

namespace {

[[maybe_unused]] const int once = ::setenv("TRIREME_REPORT_FILE", "none", 1);

}  // namespace
