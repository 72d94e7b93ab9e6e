#!/usr/bin/env bash
# The whole test suite, from a bare machine. Every step runs, whatever became of the others, unless what it needs is not
# there; the last line counts them.
#
#   scripts/test.sh           everything
#   scripts/test.sh --quick   release build and its tests, with a tenth of the random cases
set -uo pipefail
cd "$(dirname "$0")/.."

quick=false
case ${1-} in
"") ;;
--quick) quick=true ;;
*) echo "usage: scripts/test.sh [--quick]" >&2 && exit 2 ;;
esac

# Seconds that all steps together may take on two cores with nothing cached. In CI twice as much is a failure: half as
# much again was, until approximations and the Python package came; what is to be shortened next are the builds.
if $quick; then budget=360; else budget=1800; fi

jobs=${REDBLUE_JOBS:-$(nproc)}
passed=0
failed=()
summary=""
total=0

# step NAME COMMAND...: runs and times it, and keeps the verdict.
step() {
  local name=$1 start=$SECONDS verdict seconds
  printf '\n=== %s\n' "$name"
  if "${@:2}"; then
    verdict=ok passed=$((passed + 1))
  else
    verdict=FAILED failed+=("$name")
  fi
  seconds=$((SECONDS - start)) total=$((total + SECONDS - start))
  printf -- '--- %s: %s, %d s\n' "$name" "$verdict" "$seconds"
  summary+=$(printf '%-28s %-6s %5d s' "$name" "$verdict" "$seconds")$'\n'
  [ "$verdict" = ok ]
}

# build PRESET [TARGET...]
build() {
  cmake --preset "$1" -DREDBLUE_WERROR=ON >/dev/null &&
    cmake --build --preset "$1" -j "$jobs" ${2+--target "${@:2}"}
}

format() { find redblue cli python tests examples bench \( -name '*.[ch]pp' -o -name '*.[ch]' \) -print0 | xargs -0 clang-format-19 --dry-run -Werror; }
repository() { python3 tests/check_docs.py && python3 tests/check_layers.py; }
wheel() { CMAKE_BUILD_PARALLEL_LEVEL=$jobs scripts/wheel.sh; }
python_tests() {
  REDBLUE_CLI=$PWD/build/release/redblue REDBLUE_C_LIBRARY=$PWD/build/release/libredblue_c.so \
    build/venv/bin/python -m pytest -q -rs -n "$jobs" tests/python  # -rs: what was skipped, and why
}
# Some cases of each test, where all of them run elsewhere: on another instruction set, or under a sanitizer, which makes
# them ten times slower.
few_cases() { RC_PARAMS=max_success=100 REDBLUE_FEW_CASES=1 "$@"; }
# tests_of BUILD FILTER SUITE...: the tests of these suites that the filter names, many in one process. ctest starts one for
# each of thousands, which takes twice as long, and longer with a sanitizer.
tests_of() {
  local suite part parts=12
  for suite in "${@:3}"; do "build/$1/tests/test_$suite" --gtest_list_tests --gtest_filter="$2"; done | grep '^  ' >/dev/null ||
    { echo "no test is named by $2"; return 1; }
  for suite in "${@:3}"; do for ((part = 0; part < parts; part++)); do echo "$suite $part"; done; done |
    (cd "build/$1" && GTEST_TOTAL_SHARDS=$parts xargs -P "$jobs" -L 1 sh -c \
      'GTEST_SHARD_INDEX=$2 timeout 600 tests/test_$1 --gtest_brief=1 --gtest_filter="$0" ||
       { echo "test_$1, part $2: exit status $? (124: stopped after 10 minutes)"; exit 1; }' "$2")
}
# suites BUILD: all that are built.
suites() { find "build/$1/tests" -maxdepth 1 -name 'test_*' -type f -executable -printf '%f\n' | sed 's/^test_//' | grep -vx c_api; }
release_tests() {  # the rest are programs and scripts
  local all
  mapfile -t all < <(suites release)
  tests_of release '*' "${all[@]}" && ctest --preset release -R '^(c_api|kernels\.isa_symbols|scratch\.|compile_fail\.)'
}
# All but what measures this machine for seconds, and what asks how exact or how cheap an answer is, where NaN goes, or
# whether a slip is seen: the release tests do, and other tests take the same paths through memory.
asan_tests() {
  local left_out='Doctor.*:CliDoctor.*:CliObjective.*:HugeScores.*:LongSums.*:LongRuns.*:Certificates.*'
  left_out+=':CertificatesHold.*:FewerTiles.*:Outline.*:Verify.SeesAccuracy*:*ChooseTiling*:*MasksCostNothing*:NaN.*'
  left_out+=':*CanSkipOrRepeatNothing'
  local all
  mapfile -t all < <(suites asan | grep -vx 'bounds')
  few_cases tests_of asan "-$left_out" "${all[@]}" && ctest --preset asan -L '^c_api$'
}
# The tests that compute, on every instruction set below the one that the others run on. Outline and Mutants are left out:
# they ask about plans and checks, which are the same on every instruction set.
instruction_sets() {
  local isa only sets=(portable)
  for isa in avx2 avx512 avx512_bf16 amx_bf16; do ! grep -q $isa /proc/cpuinfo || sets+=($isa); done
  for isa in "${sets[@]:0:${#sets[@]}-1}"; do
    echo "REDBLUE_ISA=$isa"
    only='*'
    [ "$isa" != avx512_bf16 ] || only='*Bf16*'  # in all else it is avx512
    REDBLUE_ISA=$isa few_cases tests_of release "$only-Outline.*:*Mutants.*" schedules runtime methods verify threads || return 1
  done
}
threads() {  # tests/threads alone: a build of everything with the thread sanitizer takes longer than all its tests
  build tsan test_threads && few_cases ctest --preset tsan -L threads
}

# Each file of the library and the program, as build/asan compiles it: several as one, and those first.
# implementations_f64_avx512.cpp is left out: it includes the same headers as implementations_f32_avx512.cpp.
tidy() {
  grep -o '"file": "[^"]*"' build/asan/compile_commands.json | cut -d'"' -f4 | sed "s|^$PWD/||" |
    grep '^redblue/\|^build/asan/CMakeFiles/redblue' | grep -v implementations_f64_avx512 | sort |
    timeout 900 xargs -P "$jobs" -n 1 clang-tidy-19 -p build/asan --quiet 2>/dev/null
  local status=$?
  [ $status -ne 124 ] || echo "clang-tidy: stopped after 15 minutes"
  return $status
}

within_budget() {
  echo "$total s, of $budget s"
  [ "${CI-}" != true ] || [ "$total" -le $((2 * budget)) ] ||
    { echo "the steps took more than $((2 * budget)) s: make them faster, or say in scripts/test.sh why they may take longer"; false; }
}

finish() {
  step "budget" within_budget
  printf '\n%s\n%d s; %d passed, %d failed\n' "$summary" "$total" "$passed" "${#failed[@]}"
  [ ${#failed[@]} -eq 0 ]
  exit
}

step "setup" scripts/setup.sh --dev || finish
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
export CCACHE_BASEDIR=$PWD  # paths relative to it: what one build folder has compiled serves another
[ -w "${HOME-}" ] || export CCACHE_DIR=${CCACHE_DIR-$PWD/build/ccache}  # a bare machine may have no home
export CTEST_PARALLEL_LEVEL=$jobs

if $quick; then
  step "release build" build release && step "release tests" few_cases release_tests
  finish
fi

step "format" format
step "documents and layers" repository
if step "release build" build release; then
  step "release tests" release_tests
  step "instruction sets" instruction_sets
  step "examples" ctest --preset release -L example
  step "install and consume" ctest --preset release -L consumer
  step "wheel" wheel && step "python tests" python_tests
  step "site" scripts/site.sh
  step "demo" scripts/demo.sh
fi
# clang compiles everything once, for asan: its warnings are errors, and clang-tidy reads what it compiles.
if step "asan build" build asan; then
  step "clang-tidy" tidy
  step "asan tests" asan_tests
fi
step "tsan" threads
finish
