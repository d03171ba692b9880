# find_package(Trireme) gives the target Trireme::trireme.
include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_dependency(hwy)
include(${CMAKE_CURRENT_LIST_DIR}/TriremeTargets.cmake)
