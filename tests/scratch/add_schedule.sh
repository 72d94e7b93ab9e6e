#!/usr/bin/env bash
# Usage: REDBLUE_NEEDS=... add_schedule.sh BUILD_DIR COMPILER FLAGS...
# Adds a schedule to a scratch copy of redblue as CONTRIBUTING.md says: its header, one line of a list, its row in
# docs/schedules.md, and a mutant. Shows that it is then planned by name, counted, and under every claim; that the claims
# catch the mutant; and that the page lacked the name before. Only the list is compiled anew; the rest is the library of
# BUILD_DIR.
set -euo pipefail
build=$1 compiler=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r "$root/redblue" "$root/docs" "$work"
cp "$root/examples/two_sweeps.hpp" "$work/redblue/schedules/forward/"                                     # its header
sed -i 's/^  registry.add(describe<FlashForward>());/&\n  registry.add(describe<TwoSweepsForward>());/' \
  "$work/redblue/schedules/lists/forward.cpp"                                                                      # its line
sed -i '0,/^#include "redblue/s//#include "redblue\/schedules\/forward\/two_sweeps.hpp"\n&/' "$work/redblue/schedules/lists/forward.cpp"

cat >"$work/main.cpp" <<'END'
#include <iostream>

#include "redblue/attention.hpp"
#include "redblue/claims.hpp"
#include "redblue/schedule.hpp"
#include "redblue/schedules/forward/two_sweeps.hpp"

struct ForgetsTheStream : redblue::schedule::TwoSweepsForward {  // its mutant
  static redblue::Words footprint(const redblue::Sizes& x, Tiling t) {
    return TwoSweepsForward::footprint(x, t) - 1;
  }
};

int main() {
  using namespace redblue;
  const plan::Plan plan = plan::make_plan({.n_q = 300, .n_k = 300, .d = 16, .d_v = 16}, {.M = 2048, .schedule = "two_sweeps"});
  claims::check(*plan.row().algorithm, 100);
  std::cerr << plan.reason << '\n';
  if (count(plan).io != plan.row().io) return 1;
  try {
    claims::check(describe<ForgetsTheStream>(), 100);
    return 1;
  } catch (const claims::Broken& slip) {
    std::cerr << "the mutant is caught: " << slip.what() << '\n';
  }
  for (const std::string_view name : plan::Registry::built_in().names(Operation::forward)) std::cout << name << '\n';
}
END
"$compiler" -std=c++20 -O1 "${@:3}" -I"$work" "$work/main.cpp" "$work/redblue/schedules/lists/forward.cpp" \
  "$build"/libredblue.a $REDBLUE_NEEDS -o "$work/main"
"$work/main" >"$work/names"

not_on_the_page() {
  while read -r name; do grep -qw "$name" "$work/docs/schedules.md" || echo "$name"; done <"$work/names"
}
[ "$(not_on_the_page)" = two_sweeps ]
sed -i '0,/^| \[flash\]/s//| two_sweeps | the keys twice, no rescaling | never |\n&/' "$work/docs/schedules.md"     # its row
[ -z "$(not_on_the_page)" ]
