#!/usr/bin/env bash
# Usage: add_schedule.sh BUILD_DIR COMPILER FLAGS...
# Adds a schedule to a scratch copy of redblue as CONTRIBUTING.md says, its header and one line of a list, and shows that
# it is then planned by name and holds every claim. Only the list is compiled anew; the rest is the library of BUILD_DIR.
set -euo pipefail
build=$1 compiler=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$root/include" "$root/src" "$work"
cp "$root/examples/two_sweeps.hpp" "$work/include/redblue/schedule/forward/"                                     # its header
sed -i 's/^  registry.add(describe_fast<FlashForward>());/&\n  registry.add(describe_fast<TwoSweepsForward>());/' \
  "$work/src/schedules/forward.cpp"                                                                             # its line
sed -i '0,/^#include "redblue/s//#include "redblue\/schedule\/forward\/two_sweeps.hpp"\n&/' "$work/src/schedules/forward.cpp"

cat >"$work/main.cpp" <<'END'
#include <iostream>

#include "redblue/attention.hpp"
#include "redblue/claims.hpp"

int main() {
  using namespace redblue;
  const plan::Plan plan = plan::make_plan({.n_q = 300, .n_k = 300, .d = 16, .d_v = 16}, {.M = 2048, .schedule = "two_sweeps"});
  claims::check(*plan.row().algorithm, 100);
  const bool counted = count(plan).io == plan.row().io;
  std::cout << plan.reason << '\n';
  return counted && plan.row().algorithm->compiled != nullptr ? 0 : 1;
}
END
"$compiler" -std=c++20 -O1 "${@:3}" -I"$work/include" -I"$work/src" "$work/main.cpp" "$work/src/schedules/forward.cpp" \
  "$build"/libredblue.a -lpthread -o "$work/main"
"$work/main"
