#!/usr/bin/env bash
# Installs a build to a folder of its own, and uses it as a project elsewhere would.
#   install_test.sh CMAKE BUILD TORCH FLAGS    the command, the build's folder, whether it has LibTorch (ON, OFF), and what
#                                              outside code has to be compiled with too, such as sanitizers
set -euo pipefail
cmake=$1 build=$2 torch=$3 flags=$4
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# configure NAME OPTIONS...: the outside project, in a build folder of that name. What CMake says is in `said`.
configure() {
  local name=$1
  shift
  said=$("$cmake" -G Ninja -S "$temporary/outside" -B "$temporary/$name" "-DCMAKE_PREFIX_PATH=$prefix" \
    "-DCMAKE_CXX_FLAGS=$flags" "$@" 2>&1)
}
compile() { "$cmake" --build "$temporary/$1" --target "$2" || fail "$2 can't be built"; }

# Copied and moved, so that nothing is found by a path into Trireme's folders, or by the one that it was installed to.
prefix=$temporary/moved
"$cmake" --install "$build" --prefix "$temporary/first" >/dev/null
mv "$temporary/first" "$prefix"
cp -r "$here" "$temporary/outside"
named=$(find "$prefix" -name '*.cmake' -exec grep -lF -e "$source" -e "$build" -e "$temporary" {} +) || true
[[ -z $named ]] || fail "these name folders of the build: $named"

run=("$prefix/bin/trireme" run -n 2 --timeout 120s)
"$prefix/bin/trireme" --version

echo "the core, without LibTorch:"
configure core -DWANT=core -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON || fail "$said"
compile core core
"${run[@]}" "$temporary/core/core"

echo "whatever is there, without LibTorch:"
configure without -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON && fail "Trireme::torch was there: $said"
[[ $said == *"there is no Trireme::torch: "* ]] || fail "not told why: $said"

echo "data-parallel training, without LibTorch:"
configure refused -DWANT=torch -DCMAKE_DISABLE_FIND_PACKAGE_Torch=ON && fail "Trireme::torch was there: $said"
[[ $said == *"there is no Trireme::torch: "* ]] || fail "not told why: $said"

[[ $torch == ON ]] || exit 0
echo "as a subdirectory, configured only:"
mkdir "$temporary/around"
cat >"$temporary/around/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(Around CXX)
add_subdirectory("$source" trireme)
add_executable(train "$here/train.cpp")
target_link_libraries(train PRIVATE Trireme::torch)
END
said=$("$cmake" -G Ninja -S "$temporary/around" -B "$temporary/around/build" 2>&1) || fail "$said"

echo "data-parallel training:"
configure whole || fail "$said"
compile whole train
"${run[@]}" "$temporary/whole/train"
configure asked -DWANT=torch || fail "$said"
