#!/usr/bin/env bash
# Builds one fuzzer with Clang, and runs it on its corpus and on what it makes of that.
#   fuzz.sh BUILD NAME SECONDS    a folder to build in, the fuzzer (a file beside this one), and for how long
# Exit status 77 where there is no Clang with libFuzzer: tools/setup test installs it.
set -euo pipefail
build=$1 name=$2 seconds=$3
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
mkdir -p "$build"

skip() {
  echo "skipped: $*; 'tools/setup test' installs what is missing"
  exit 77
}
command -v clang++ >/dev/null || skip "there is no clang++"
probe='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
clang++ -x c++ -fsanitize=fuzzer,address - -o "$build/probe-$name" <<<"$probe" 2>/dev/null ||
  skip "this clang++ has no libFuzzer"

{
  flock 9
  [[ -e $build/build.ninja ]] || (cd "$source" && cmake --preset fuzz -B "$build" >"$build/configure.log") ||
    { cat "$build/configure.log"; exit 1; }
  cmake --build "$build" --target "fuzz_$name" >"$build/build-$name.log" || { cat "$build/build-$name.log"; exit 1; }
} 9>"$build/lock"

# What is found is kept in the build's folder; only what people put there is in the repository. By itself libFuzzer would
# exit with 77 for what it finds wrong, which is what being skipped is.
mkdir -p "$build/found/$name"
"$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=64 \
  -error_exitcode=1 -print_final_stats=1 -verbosity=0 -artifact_prefix="$build/$name-" \
  "$build/found/$name" "$here/corpus/$name"
echo "fuzz_$name: nothing wrong in $seconds s"
