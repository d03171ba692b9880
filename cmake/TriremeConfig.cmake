# find_package(Trireme) gives the target Trireme::trireme.
include(CMakeFindDependencyMacro)
find_dependency(fmt)
include(${CMAKE_CURRENT_LIST_DIR}/TriremeTargets.cmake)
