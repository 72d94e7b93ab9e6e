#!/usr/bin/env bash
# From a bare machine to attention on the Q, K, V of a real transformer: installs what is missing, builds redblue, plans
# for a fast memory of M = 4096 words, counts, runs, and checks the result.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh

# An existing build is updated as it is configured; a new build leaves out the tests, which need more packages.
if [ ! -f build/release/build.ninja ]; then
  echo "demo: configuring build/release"
  cmake --preset release -DREDBLUE_BUILD_TESTS=OFF -DREDBLUE_BUILD_EXAMPLES=OFF >/dev/null
fi
echo "demo: building (the first time takes a few minutes)"
cmake --build --preset release --target redblue-cli
mkdir -p build/demo

input=examples/data/minilm.safetensors
output=build/demo/out.safetensors
gradients=build/demo/gradients.safetensors
M=4096

show() {
  printf '\n## %s\n$ %s\n' "$1" "redblue ${*:2}"
  build/release/redblue "${@:2}"
}

show "Which schedule moves the fewest words? (2 heads, 512 queries and keys, d = 32)" \
  plan --op forward --heads 2 --n 512 --d 32 --M $M
show "Count the words of that schedule without any data, and compare with its formula" \
  count --op forward --heads 2 --n 512 --d 32 --M $M
show "Run it on a layer of a real sentence encoder, and check every number against an fp64 oracle" \
  run --op forward --M $M --input $input --output $output --verify
show "Gradients: rank the schedules; two passes do 7 products where one pass does 5, and still move fewer words" \
  plan --op backward --heads 2 --n 512 --d 32 --M $M
show "Run the best one, and check it against an fp64 oracle and central differences" \
  run --op backward --M $M --input $input --output $gradients --verify

printf '\ndemo: o and lse are in %s, dq, dk and dv in %s\n' $output $gradients
