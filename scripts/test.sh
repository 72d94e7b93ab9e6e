#!/usr/bin/env bash
# The whole test suite, from a bare machine. Every step runs, whatever became of the others, unless what it needs is not
# there; the last line counts them.
#
#   scripts/test.sh           everything
#   scripts/test.sh --quick   release build and its tests
set -uo pipefail
cd "$(dirname "$0")/.."

quick=false
case ${1-} in
"") ;;
--quick) quick=true ;;
*) echo "usage: scripts/test.sh [--quick]" >&2 && exit 2 ;;
esac

jobs=${REDBLUE_JOBS:-$(nproc)}
scripts/setup.sh --dev || { echo "0 passed, 1 failed" && exit 1; }
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
export CTEST_PARALLEL_LEVEL=$jobs

passed=0
failed=()
summary=""

# step NAME COMMAND...: runs and times it, and keeps the verdict.
step() {
  local name=$1 start=$SECONDS verdict
  printf '\n=== %s\n' "$name"
  if "${@:2}"; then
    verdict=ok passed=$((passed + 1))
  else
    verdict=FAILED failed+=("$name")
  fi
  printf -- '--- %s: %s, %d s\n' "$name" "$verdict" $((SECONDS - start))
  summary+=$(printf '%-28s %-6s %5d s' "$name" "$verdict" $((SECONDS - start)))$'\n'
  [ "$verdict" = ok ]
}

build() { cmake --preset "$1" -DREDBLUE_WERROR=ON >/dev/null && cmake --build --preset "$1" -j "$jobs"; }

format() { find include src cli tests examples \( -name '*.[ch]pp' -o -name '*.[ch]' \) -print0 | xargs -0 clang-format-19 --dry-run -Werror; }
repository() { python3 tests/check_docs.py && python3 tests/check_layers.py; }
python_tests() {
  REDBLUE_CLI=$PWD/build/release/redblue REDBLUE_C_LIBRARY=$PWD/build/release/libredblue_c.so \
    build/venv/bin/python -m pytest -q tests/python
}
# The tests that compute, on every instruction set below the one that the others run on.
instruction_sets() {
  local isa
  for isa in portable avx2 avx512; do
    [ $isa = portable ] || grep -q $isa /proc/cpuinfo || continue
    echo "REDBLUE_ISA=$isa"
    REDBLUE_ISA=$isa ctest --preset release -L '^(schedule|api|threads|c_api)$' || return 1
  done
}
threads() {  # tests/threads alone: a build of everything with the thread sanitizer takes longer than all its tests
  cmake --preset tsan -DREDBLUE_WERROR=ON >/dev/null && cmake --build --preset tsan -j "$jobs" --target test_threads &&
    ctest --preset tsan -L threads
}

tidy() {
  find src cli -name '*.cpp' -print0 | timeout 900 xargs -0 -P "$jobs" -n 1 clang-tidy-19 -p build/clang --quiet 2>/dev/null
  local status=$?
  [ $status -ne 124 ] || echo "clang-tidy: stopped after 15 minutes"
  return $status
}

finish() {
  printf '\n%s\n%d passed, %d failed\n' "$summary" "$passed" "${#failed[@]}"
  [ ${#failed[@]} -eq 0 ]
  exit
}

if $quick; then
  step "release build" build release && step "release tests" ctest --preset release
  finish
fi

step "format" format
step "documents and layers" repository
if step "release build" build release; then
  step "release tests" ctest --preset release -LE 'repository|consumer|example'
  step "instruction sets" instruction_sets
  step "examples" ctest --preset release -L example
  step "install and consume" ctest --preset release -L consumer
  step "python tests" python_tests
  step "demo" scripts/demo.sh
fi
step "clang build" build clang && step "clang tests" ctest --preset clang -LE 'repository|consumer'
if [ -f build/clang/compile_commands.json ]; then step "clang-tidy" tidy; fi
step "asan build" build asan && step "asan tests" ctest --preset asan -LE 'repository|compile_fail'
step "tsan" threads
finish
