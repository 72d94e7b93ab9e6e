#!/usr/bin/env bash
# Usage: REDBLUE_NEEDS=... add_option.sh BUILD_DIR COMPILER PYTHON FLAGS...
# Adds two options, a number and one of three names, to a scratch copy of redblue, each in the three files that say what it
# is: the member of Problem, its row in the table, and its field in redblue.h. (The fourth is where it acts.) Shows that
# JSON, the program's flags, what is refused, the C struct and its defaults have them; and, where PYTHON has nanobind,
# Python's keywords, their judgement and what is pickled.
# What reads options is compiled anew; the rest is the library of BUILD_DIR, of which nothing that makes a Problem is called.
set -euo pipefail
build=$1 compiler=$2 python=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$root/redblue" "$root/cli" "$root/python" "$work"
cd "$work"

insert_before() {  # FILE PATTERN LINE: fails where the pattern is not there
  grep -q "$2" "$1"
  sed -i "0,/$2/s//${3//$'\n'/\\n}\n&/" "$1"
}
insert_before redblue/problem/problem.hpp '^  \/\/\/ Throws InvalidProblem naming the offending size' \
  '  double sharpness = 3;  \/\/\/< scores are multiplied by it\n  Fringe fringe = Fringe::hard;'
insert_before redblue/problem/problem.hpp '^\/\/\/ Attention over `batch` x `heads`, or its gradients' \
  'enum class Fringe : std::uint8_t { soft, hard, none };
inline constexpr std::array<std::string_view, 3> kFringeNames{"soft", "hard", "none"};
constexpr const auto\& names_of(Fringe) { return kFringeNames; }'
insert_before redblue/problem/options.hpp '^      REDBLUE_OPTION(Problem, dropout,' \
  '      REDBLUE_OPTION(Problem, sharpness, {.help = "factor of scores", .flag = "--sharpness", .allowed = {": give 1 to 9", 1, 9}}),
      REDBLUE_OPTION(Problem, fringe, {.help = "of the mask", .flag = "--fringe"}),'
insert_before redblue/c_api/redblue.h '^} redblue_problem;' '  double sharpness; \/* scores are multiplied by it *\/\n  int32_t fringe;'

cat >main.cpp <<'END'
#include <redblue.h>

#include <iostream>

#include "cli/options/flags.hpp"
#include "cli/report/json.hpp"
#include "cli/options/options.hpp"
#include "redblue/c_api/structs.hpp"
#include "redblue/language/error.hpp"

using namespace redblue;

void require(bool right, const char* what) {
  if (right) return;
  std::cerr << "not so: " << what << '\n';
  std::exit(1);
}

template <class F>
void require_refused(const F& f, const std::string& why) {
  try {
    f();
    require(false, why.c_str());
  } catch (const Error& e) {
    require(e.what() == why, e.what());
  }
}

int main() {
  cli::ProblemFlags flags;
  cli::Program program("", "", "");
  const cli::Command command = program.command("plan", "");
  flags.add_others(command, true);
  command.does([] { return 7; });
  const char* words[] = {"redblue", "plan", "--sharpness", "4", "--fringe", "soft"};
  require(program.run(6, const_cast<char**>(words)) == 7, "the program takes the flags");
  Problem p{.n_q = 5, .n_k = 5, .d = 2, .d_v = 2};
  require(!cli::to_json(p).contains("sharpness") && !cli::to_json(p).contains("fringe"), "JSON leaves defaults out");
  flags.apply_to(p);
  require(p.sharpness == 4 && cli::to_json(p)["sharpness"] == 4, "JSON has what the flag says");
  require(p.fringe == Fringe::soft && cli::to_json(p)["fringe"] == "soft", "JSON has the name that the flag says");

  cli::ProblemFlags sharp;
  cli::Program another("", "", "");
  const cli::Command other = another.command("plan", "");
  sharp.add_others(other, true);
  other.does([] { return 7; });
  const char* no_name[] = {"redblue", "plan", "--fringe", "sharp"};
  another.run(4, const_cast<char**>(no_name));
  require_refused([&] { sharp.apply_to(p); }, "--fringe sharp: choose from soft, hard, none");

  p.sharpness = 10;
  require_refused([&] { p.validate(); }, "sharpness = 10: give 1 to 9");
  redblue_problem c;
  redblue_problem_init(&c);
  require(c.sharpness == 3 && c.fringe == 1 && c.struct_size == sizeof c, "the C struct has the defaults");
  c.sharpness = 5, c.fringe = 2;
  require(c_api::problem_of(c).sharpness == 5 && c_api::problem_of(c).fringe == Fringe::none, "the library reads the C struct");
  c.fringe = 3;
  require_refused([&] { c_api::problem_of(c); }, "fringe = 3: give 0 to 2, for soft, hard, none");
}
END
compile=("$compiler" -std=gnu++20 -O0 -fPIC -DFMT_HEADER_ONLY "${@:4}" -I. -Icli -Iredblue/c_api)
# Several files as one, which reads their headers once; two at a time.
printf '#include "%s.cpp"\n' redblue/problem/problem redblue/c_api/structs >options.cpp
printf '#include "%s.cpp"\n' cli/{no_approximations,options/flags,report/json,command_line} main >program.cpp
"${compile[@]}" -c options.cpp &
"${compile[@]}" -c program.cpp
wait $!
"${compile[@]}" program.o options.o "$build/libredblue.a" -Wl,--allow-multiple-definition $REDBLUE_NEEDS -o main
./main

if ! "$python" -c 'import nanobind, numpy' 2>"$work/none"; then
  echo "without Python: $(tail -1 "$work/none")"
  exit 0
fi
cat >core.cpp <<'END'
#include "python/src/problem.cpp"

#include "python/src/options.hpp"

/// What redblue/_call/settings.py takes of the extension module: the class Problem and the tables.
NB_MODULE(_core, m) {
  using namespace redblue;
  python::add_problem(m);
  m.def("layouts", [] { return nanobind::dict(); });  // asked for at import
  m.def("remember_types", [](nanobind::args) {});     // likewise
  m.def("count_refusal", [] {});                      // by errors
  m.def("state", [](const Problem& p) { return python::values_of(problem_options(), p); });
  m.def("restored", [](const nanobind::dict& state) {
    Problem p;
    python::set_values(problem_options(), state, p);
    return p;
  });
}
nanobind::object redblue::python::integer_of(Words words) { return nanobind::int_(words.to_index()); }
END
nb=$(dirname "$("$python" -m nanobind --include_dir)")
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
extension=("${compile[@]}" -w -isystem "$include" -isystem "$nb/include" -I"$nb/ext/robin_map/include")
"${extension[@]}" -c "$nb/src/nb_combined.cpp" &
"${extension[@]}" -c core.cpp
wait $!
"${compile[@]}" -shared core.o nb_combined.o options.o "$build/libredblue.a" -Wl,--allow-multiple-definition $REDBLUE_NEEDS \
  -o python/redblue/_core.so
: >python/redblue/__init__.py
PYTHONPATH=python "$python" - <<'END'
from redblue import _core
from redblue._call.options import OPTIONS, Options
from redblue._call.settings import settings_of, problem_of, Sizes

option = OPTIONS["sharpness"]
assert (option.type, option.default, option.help) == ("float", 3.0, "factor of scores"), option
assert Options.__annotations__["sharpness"] is float
assert settings_of({}, {}).sharpness == 3 and settings_of({"sharpness": 4}, {}) != settings_of({}, {})  # keys of the cache
assert (OPTIONS["fringe"].type, OPTIONS["fringe"].default, Options.__annotations__["fringe"]) == ("str", "hard", str), OPTIONS["fringe"]
problem = lambda **options: problem_of("forward", Sizes(1, 1, 1, 5, 5, 2, 2), settings_of(options, {}))
for wrong, why in (
    ({"sharpness": "4"}, "sharpness = '4': give a plain number"),
    ({"fringe": 4}, "fringe = 4: give a text"),
    ({"fringe": "sharp"}, "fringe = 'sharp': choose from soft, hard, none"),
):
    try:
        problem(**wrong)
        raise SystemExit(f"{wrong} is taken")
    except Exception as e:  # this module has no errors of its own
        assert why in str(e), e
p = problem(sharpness=4, fringe="none")
again = _core.restored(_core.state(p))
assert (p.sharpness, p.fringe) == (again.sharpness, again.fringe) == (4, "none")
END
