#!/usr/bin/env bash
# The tests, from a bare machine; scripts/test.sh --help says which there are. Each step runs, whatever became of the others,
# unless what it needs is not there. The last line counts them.
set -uo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'END'
scripts/test.sh           what to run first: all C++ tests, with a tenth of their random cases, and the Python tests that need
                          NumPy only. About 10 minutes on two cores from nothing, 6 after scripts/demo.sh.
scripts/test.sh PART...   these parts, with all random cases. Beside its own minutes, a part that is marked * takes the minutes
                          of a build: 7 from nothing, 4 after scripts/demo.sh.
scripts/test.sh --all     all parts, with a third of the random cases of cpp, and warnings as errors: about 34 minutes. CI runs
                          this; before a release all random cases run, too: scripts/test.sh cpp.

  cpp          6  *  C++ tests; snippets that must not compile; a schedule added to a copy
  python       3  *  Python tests that need NumPy only, on the package of the build
  torch        3  *  Python tests of PyTorch, transformers, JAX and ONNX
  isa          2  *  the C++ tests that compute, on every lesser instruction set of this processor
  examples     1  *  the examples run
  consumers    1  *  installed, moved, or packed for Debian, redblue serves programs outside its tree
  wheel        5     a wheel for manylinux is built and installed into build/venv
  site         1  *  the documentation as web pages
  demo         1  *  scripts/demo.sh
  docs         1     format of sources, names in documents, comments, layers, sizes of files; ruff on the Python files
  types        1  *  mypy on the Python package
  sanitizers  12     C++ tests under the address, undefined-behaviour and thread sanitizers of clang
  tidy         5     clang-tidy
END
}

parts=(docs cpp types isa examples consumers wheel python torch site demo tidy sanitizers)
all=false first=false chosen=("$@")
case ${1-} in
--help | -h) usage && exit ;;
--all) all=true chosen=("${parts[@]}") ;;
"") first=true chosen=(cpp python) ;;
esac
[ $# -le 1 ] || ! $all || { usage >&2 && exit 2; }
for part in "${chosen[@]}"; do
  [[ " ${parts[*]} " = *" $part "* ]] || { echo "scripts/test.sh: there is no part $part" >&2 && usage >&2 && exit 2; }
done

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

# build PRESET [CMAKE_OPTION...] [-- TARGET...]. Without --all nothing is configured that demo.sh has not configured for the
# objects that it made: they are not compiled again.
build() {
  local preset=$1 options=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1") && shift; done
  ! $all || options+=(-DREDBLUE_WERROR=ON)
  cmake --preset "$preset" "${options[@]}" >/dev/null && cmake --build --preset "$preset" -j "$jobs" ${2+--target "${@:2}"}
}

# The library, the program, the tests and the Python package, which becomes the folder build/python.
release_build() {
  local options=(-DREDBLUE_BUILD_PYTHON=ON -DPython_EXECUTABLE="$PWD/build/venv/bin/python")
  ! $first || options+=(-DREDBLUE_BUILD_EXAMPLES=OFF)
  ! $all || options+=(-DREDBLUE_MPI=ON)
  build release "${options[@]}" && rm -rf build/python &&
    cmake --install build/release --component python --prefix build/python >/dev/null
}

format() { find redblue cli python tests examples bench \( -name '*.[ch]pp' -o -name '*.[ch]' \) -print0 | xargs -0 clang-format-19 --dry-run -Werror; }
repository() {
  python3 tests/check_docs.py && python3 tests/check_comments.py && python3 tests/check_layers.py && python3 tests/check_sizes.py
}
wheel() {
  local strict=()
  ! $all || strict=(--config-settings=cmake.define.REDBLUE_WERROR=ON)
  CMAKE_BUILD_PARALLEL_LEVEL=$jobs scripts/wheel.sh "${strict[@]}" && package=  # tests take the wheel in place of build/python
}

package=$PWD/build/python
frameworks=tests/python/frameworks
pytest() {
  PYTHONPATH=$package REDBLUE_CLI=$PWD/build/release/redblue REDBLUE_C_LIBRARY=$PWD/build/release/libredblue_c.so \
    build/venv/bin/python -m pytest -q -rs -n "$jobs" --dist worksteal "$@"  # -rs: what was skipped, and why
}
python_tests() {
  set -- --ignore=$frameworks tests/python
  if $first; then few_cases pytest -m "not slow" "$@"; else pytest "$@"; fi
}

# Some cases of each test, where all of them run elsewhere: on another instruction set, or under a sanitizer, which makes
# them ten times slower.
few_cases() { RC_PARAMS=max_success=100 REDBLUE_FEW_CASES=10 REDBLUE_COUNT_CASES=60 "$@"; }
fewer_cases() { RC_PARAMS=max_success=15 REDBLUE_FEW_CASES=30 "$@"; }
# All parts together have time for a third of the random cases, and for each listed case that few cases leave out.
# scripts/test.sh cpp has all random cases; docs/releasing.md asks for it.
third_of_cases() { REDBLUE_FEW_CASES=3 "$@"; }
# tests_of BUILD FILTER SUITE...: the tests of these suites that FILTER names, a pattern or a function that prints that of a
# suite; many in one process. ctest starts one for each of thousands, which takes twice as long, and longer with a sanitizer.
# Each schedule has twelve tests, one a claim: with thirteen parts, each part has all claims. One part of every suite comes
# before the next, so that no suite is left for the end.
tests_of() {
  local suite part parts=13 named
  declare -A filters
  for suite in "${@:3}"; do
    if declare -F "$2" >/dev/null; then filters[$suite]=$("$2" "$suite"); else filters[$suite]=$2; fi
  done
  named=$(for suite in "${@:3}"; do "build/$1/tests/test_$suite" --gtest_list_tests --gtest_filter="${filters[$suite]}"; done)
  grep '^  ' <<<"$named" >/dev/null || { echo "no test is named by $2" && return 1; }
  for ((part = 0; part < parts; part++)); do for suite in "${@:3}"; do echo "$suite $part ${filters[$suite]}"; done; done |
    (cd "build/$1" && GTEST_TOTAL_SHARDS=$parts xargs -P "$jobs" -L 1 sh -c \
      'GTEST_SHARD_INDEX=$1 timeout 600 tests/test_$0 --gtest_brief=1 --gtest_filter="$2" ||
       { echo "test_$0, part $1: exit status $? (124: stopped after 10 minutes)"; exit 1; }')
}
# suites BUILD: all that are built.
suites() { find "build/$1/tests" -maxdepth 1 -name 'test_*' -type f -executable -printf '%f\n' | sed 's/^test_//' | grep -vx c_api; }
release_tests() {  # the rest are programs and scripts
  local built
  mapfile -t built < <(suites release)
  tests_of release '*' "${built[@]}" && ctest --preset release -R '^(c_api|kernels\.isa_symbols|pebbling|mpi\.|scratch\.|compile_fail\.)'
}
cpp_tests() { if $first; then few_cases release_tests; elif $all; then third_of_cases release_tests; else release_tests; fi; }
# sanitized SUITE: what the address sanitizer looks at. It is there for what reads and writes memory: kernels, machines, runs,
# files, patterns, the C interface. The release tests alone ask what a plan is, what the program answers and refuses, how
# exact or how cheap something is, where NaN goes, and whether a slip is seen; and tests that take long take few other paths.
sanitized() {
  local left_out='Doctor.*:HugeScores.*:LongSums.*:LongRuns.*:Certificates.*:CertificatesHold.*:FewerTiles.*:Outline.*:NaN.*'
  left_out+=':Verify.SeesAccuracy*:*ChooseTiling*:*MasksCostNothing*:*CanSkipOrRepeatNothing:*QueriesWithOneKeyAreZero'
  left_out+=':Polynomial.HasTheLeastDegrees*:PolynomialPlans.ReproduceTheTable:*Numbers.AreAccurate*:FlashPinned.*'
  left_out+=':Hdag.a_million_nodes*:PebblingSolver.LargerGraphs*:PebblingSolver.SeveralProcessorsKeepMore'
  left_out+=':PebblingSolver.RecomputationHelpsAGridAndNotAttention:PebblingGreedy.ALargeGraphIsNoTrouble'
  left_out+=':Verify.PassesPlansOfFewestWords*:Verify.Allows*:SchedulesOfGroups.*:Strassen.KeepsEveryClaim'
  left_out+=':MethodRuns.AreAccurate*'
  left_out+=':Fastest.Tolerance*:RankPlans.AskLittleOfManyRanks:Reproducible.BitsAreTheSameForAllRanksLayoutsAndOwnerships'
  left_out+=':*_TracesReplayToTheSameBits'  # Trace.* and tests of machines trace and replay every exact schedule
  left_out+=':*_IoIsTheFormula:*_FootprintIsExactInBytes:*_BytesAreThoseOfUnfinishedWords:*_MovesNoLessThanTheBounds'
  left_out+=':*_ChoosesNoDearerTiling:Orders.ACapNamesTheLeast*:Nest.MovesNoLess*'  # machines that count hold no words
  case $1 in
  # Files of these two suites that have none of these tests are not built (tests/CMakeLists.txt).
  cli) echo 'Cli.Run*:Cli.RefusesBroken*:Cli.RefusesIncomplete*:Cli.Keeps*:Cli.PebblesAGraph:CliOperations.Run*:CliResume.*' \
    'CliRanks.*:OverFiles.*:-OverFiles.StaysBelowItsLimit' ;;  # the sanitizer has memory of its own
  planner) echo 'Patterns.*:Pattern.*:RunLists.*:SparseSchedules.*:Blocks.*:Recipes.*:-Patterns.OfTooManyRunsHaveNoOrder*' \
    'Recipes.TakeTheLongest*:Recipes.PatternsTake*:Recipes.TakeAboutTheLeast*:Recipes.LeaveOther*' ;;
  threads) echo '-ThreadsRun.GiveTheSameBits*' ;;  # the thread sanitizer runs those
  *) echo "-$left_out" ;;
  esac | sed 's/ /:/g'
}
asan_tests() {
  local built
  mapfile -t built < <(suites asan)
  fewer_cases tests_of asan sanitized "${built[@]}" && ctest --preset asan -L '^c_api$'
}
# The tests that compute, on every instruction set below the one that the others run on. Outline, Mutants and the claims
# that count words are left out: they ask about plans and checks, which are the same on every instruction set, and a trace is
# replayed by portable kernels.
instruction_sets() {
  local isa only sets=(portable) left_out='Outline.*:*Mutants.*:*_IoIsTheFormula:*_FootprintIsExactInBytes'
  left_out+=':*_BytesAreThoseOfUnfinishedWords:*_KeepsTheRules:*_MovesNoLessThanTheBounds:*_CanSkipOrRepeatNothing'
  left_out+=':*_ChoosesNoDearerTiling:*_TracesReplayToTheSameBits'
  for isa in avx2 avx512 avx512_bf16 amx_bf16; do ! grep -q $isa /proc/cpuinfo || sets+=($isa); done
  for isa in "${sets[@]:0:${#sets[@]}-1}"; do
    echo "REDBLUE_ISA=$isa"
    only='*'
    [ "$isa" != avx512_bf16 ] || only='*Bf16*'  # in all else it is avx512
    REDBLUE_ISA=$isa few_cases tests_of release "$only-$left_out" schedules runtime methods verify threads || return 1
  done
}
# With --all the site is made while other steps run: it needs one core, and the network at first. Its step waits for it.
site() { PYTHONPATH=$package scripts/site.sh; }
begin_site() { site >build/site.log 2>&1 & making_site=$!; }
end_site() {
  wait "$making_site"
  local status=$?
  cat build/site.log
  return $status
}
threads() {  # tests/threads alone: a build of everything with the thread sanitizer takes longer than all its tests
  build tsan -- test_threads && few_cases ctest --preset tsan -L threads
}

# Each file of the library and the program, as build/asan compiles it: several as one, and those first.
# Files of _f64_avx512 are left out: they include the same headers as those of _f32_avx512.
tidy() {
  build asan -- redblue-commit || return 1
  grep -o '"file": "[^"]*"' build/asan/compile_commands.json | cut -d'"' -f4 | sed "s|^$PWD/||" |
    grep '^redblue/\|^build/asan/CMakeFiles/redblue\|^build/asan/schedules\|^cli/without_mpi' | grep -v _f64_avx512 | sort |
    timeout 900 xargs -P "$jobs" -n 1 clang-tidy-19 -p build/asan --quiet 2>/dev/null
  local status=$?
  [ $status -ne 124 ] || echo "clang-tidy: stopped after 15 minutes"
  return $status
}

# In CI, all parts together may take an hour, twice what two cores with nothing cached should take.
within_limit() {
  echo "all steps took $total s; they should take 1800 s on two cores with nothing cached"
  [ "${CI-}" != true ] || [ "$total" -le 3600 ] ||
    { echo "that is more than 3600 s: make them faster, or say in scripts/test.sh why they may take longer"; false; }
}

finish() {
  ! $all || step "at most 3600 s in CI" within_limit
  printf '\n%s\n%d s; %d passed, %d failed\n' "$summary" "$total" "$passed" "${#failed[@]}"
  [ ${#failed[@]} -eq 0 ]
  exit
}

# wants PART...: is one of these parts chosen?
wants() {
  local part
  for part in "$@"; do [[ " ${chosen[*]} " != *" $part "* ]] || return 0; done
  return 1
}

if $first; then
  echo "scripts/test.sh: about 10 minutes on two cores from nothing, 6 after scripts/demo.sh. They take 0.6 GB in build/"
  echo "and, on a bare machine, 0.5 GB of Debian packages. scripts/test.sh --help lists the parts that are left out here."
fi
if wants docs types torch consumers wheel site tidy sanitizers; then needs=--dev; else needs=--test; fi
step "setup" scripts/setup.sh $needs || finish
if $all; then
  # What one build folder has compiled serves another; to know it, no file is preprocessed (CCACHE_DEPEND).
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_DEPEND=1
  [ -w "${HOME-}" ] || export CCACHE_DIR=${CCACHE_DIR-$PWD/build/ccache}  # a bare machine may have no home
fi
export CTEST_PARALLEL_LEVEL=$jobs

# part NAME STEP COMMAND...: this step, if the part is chosen.
part() { ! wants "$1" || step "${@:2}"; }

part docs "format" format
part docs "documents, layers, sizes" repository
part docs "ruff" build/venv/bin/ruff check
if wants cpp types isa examples consumers python torch site demo; then
  step "release build" release_build || finish
  ! $all || begin_site
  part cpp "C++ tests" cpp_tests
  part types "mypy" build/venv/bin/mypy
  part isa "instruction sets" instruction_sets
  part examples "examples" ctest --preset release -L example
  part consumers "install and consume" ctest --preset release -L consumer
  part wheel "wheel" wheel
  part python "Python tests" python_tests
  part torch "tests of PyTorch, JAX, ONNX" pytest $frameworks
  part site "site" "$($all && echo end_site || echo site)"
  part demo "demo" scripts/demo.sh
elif wants wheel; then
  step "wheel" wheel
fi
part tidy "clang-tidy" tidy
# clang compiles everything once, for asan, and its warnings are errors.
if wants sanitizers; then
  ! step "asan build" build asan || step "asan tests" asan_tests
  step "tsan" threads
fi
finish
