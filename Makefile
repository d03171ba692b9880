# The front door: `make help` says what there is. The work is done by CMake (CMakePresets.json) and tools/.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -o pipefail -c
.PHONY: help setup build demo test test-debug test-asan test-tsan fuzz bench docs lint format clean

JOBS ?= $(shell nproc)
sources = git ls-files -z '*.h' '*.cpp'

help:  ## say what each target does
	@awk -F ':.*## ' '/^[a-z][a-z -]*:.*## / { printf "  make %-30s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## install what the build needs, if anything is missing
	@tools/setup

build: build/build.ninja  ## build the program: build/trireme
	cmake --build --preset release --target trireme_cli

demo: build/build.ninja  ## build, then show what Trireme does
	cmake --build --preset release --target trireme_cli example_hello example_makemore
	tools/demo

test: build/build.ninja  ## build everything and run all tests
	@tools/setup test
	cmake --build --preset release
	ctest --preset release --parallel $(JOBS)

test-debug test-asan test-tsan: test-%: build-%/build.ninja  ## the same, unoptimised or under sanitizers
	@tools/setup test
	cmake --build --preset $*
	ctest --preset $* --parallel $(JOBS)

fuzz:  ## feed the readers of what comes from outside all sorts of bytes; make fuzz SECONDS=3600 for longer
	@tools/setup lint
	for name in tcp rendezvous program hostfile agent init engine; do tests/fuzz/fuzz.sh build-fuzz $$name $(or $(SECONDS),600) || exit 1; done

bench: build/build.ninja  ## run the benchmarks; make bench ONLY=simulate runs those that match
	@tools/setup bench || echo 'make bench: going on without the peers that are missing'
	@cmake --preset release >/dev/null  # finds peers that have come since
	cmake --build --preset release --target trireme_cli trireme_bench probe peers
	build/bench/trireme_bench $(if $(ONLY),--only '$(ONLY)')

docs: build  ## make the tables and pictures of README and docs/ anew
	tools/docs

lint:  ## check format, clang-tidy's findings and the order of the layers
	@tools/setup lint bench
	@cmake --preset lint >/dev/null
	$(sources) | xargs -0 -r clang-format --dry-run -Werror
	git ls-files -z '*.cpp' | xargs -0 -r -n 1 -P $(JOBS) \
	  clang-tidy -p build-lint --quiet --extra-arg=-include --extra-arg='$(CURDIR)/tools/clang_tidy.h' \
	  --extra-arg=-Wno-ignored-optimization-argument 2>&1 \
	  | sed '/^[0-9]* warnings* generated\.$$/d'
	tools/check-layers

format:  ## format all sources
	@tools/setup lint
	$(sources) | xargs -0 -r clang-format -i

clean:  ## remove everything that was built
	rm -rf build build-debug build-asan build-tsan build-fuzz build-lint demo

# Configured once; after that the build itself notices changes to CMake's files.
build/build.ninja: CMakePresets.json | setup
	cmake --preset release

build-%/build.ninja: CMakePresets.json | setup
	cmake --preset $*
