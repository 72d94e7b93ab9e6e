#!/usr/bin/env python3
"""Prints the data of Figure 1 and Table 1 of Li et al. (2024, arXiv 2410.09397): words of dL/dX against fast memory M, for
their algorithms as printed, for redblue's repaired ones, and for the best, beside the lower bound. The counting machine
counts every word. The program redblue is build/release/redblue, or what the environment names as REDBLUE_CLI.

    scripts/figure1.py
    scripts/figure1.py --n 4096 --d 64 --per-octave 2 --format csv
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys

PROGRAM = os.environ.get("REDBLUE_CLI", pathlib.Path(__file__).parent.parent / "build/release/redblue")
COLUMNS = ["printed_small", "printed_large", "repaired_small", "repaired_large", "best"]


def ask(command, n, d, M, *options):
    words = [PROGRAM, command, "--op", "gradient-x", "--n", n, "--d", d, "--M", M, "--json", *options]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.rstrip() or f"{PROGRAM} ended with status {done.returncode}")
    return json.loads(done.stdout)


def point(n, d, M, schedule):
    """What `schedule` moves and holds, counted."""
    counted = ask("count", n, d, M, "--schedule", schedule)["counted"]
    return {"schedule": schedule, "io": counted["io"], "peak": counted["peak"], "peak_over_M": counted["peak"] / M}


def line(n, d, M):
    plan = ask("plan", n, d, M)
    plans = [p["schedule"] for p in plan["plans"]]
    # The schedules of the paper that need more than M words are counted as well: they were printed for this M.
    large = [p["schedule"] for p in plan["plans"] if p["may_be_chosen"] and p["schedule"] != "6R"]
    named = ["algorithm_6", "algorithm_9", "6R", *large[:1], *[None] * (not large), plans[plan["chosen"]]]
    return {
        "M": M,
        "M_over_d2": M / d**2,
        **{column: point(n, d, M, name) if name in plans else None for column, name in zip(COLUMNS, named)},
        "bound": plan["bound"],
        "small_cache_form": (n * n * d + n * d * d) / math.sqrt(M),
        "large_cache_form": (n * n * d * d + n * d**3) / M,
    }


def crossover(lines, a, b):
    """The last M at which `b` begins to move no more words than `a`; None if there is none, or `b` does so from the first M."""
    last, before = None, False  # did `a` win at the previous M?
    for at in lines:
        if at[a] is None:
            continue
        wins = at[b] is not None and at[b]["io"] <= at[a]["io"]
        if wins and before:
            last = at["M"]
        before = not wins
    return last


def as_json(n, d, lines):
    return json.dumps(
        {
            "schema": "redblue.figure1/1",
            "source": "Li et al. 2410.09397, Figure 1 and Table 1",
            "problem": ask("plan", n, d, lines[0]["M"])["problem"],
            "counts": "executed on the counting machine",
            "table1": {
                "small_cache": {"condition": "M < d^2", "form": "(n^2 d + n d^2) / sqrt(M)", "algorithm": "algorithm_6"},
                "large_cache": {"condition": "M >= d^2", "form": "(n^2 d^2 + n d^3) / M", "algorithm": "algorithm_9"},
            },
            "crossover": {
                "theory": d * d,
                "printed": crossover(lines, "printed_small", "printed_large"),
                "repaired": crossover(lines, "repaired_small", "repaired_large"),
            },
            "points": lines,
        },
        indent=2,
    )


def as_csv(lines):
    head = ["M", *(f"{column}{part}" for column in COLUMNS for part in ("", "_io", "_peak"))]
    rows = [[*head, "bound", "bound_io", "small_cache_form", "large_cache_form"]]
    for at in lines:
        points = [at[column] or {"schedule": "", "io": "", "peak": ""} for column in COLUMNS]
        counted = [p[key] for p in points for key in ("schedule", "io", "peak")]
        forms = [f"{at[form]:.1f}" for form in ("small_cache_form", "large_cache_form")]
        rows.append([at["M"], *counted, at["bound"]["theorem"], at["bound"]["words"], *forms])
    return "\n".join(",".join(map(str, row)) for row in rows)


def main(arguments):
    parser = argparse.ArgumentParser(description="Prints the words of dL/dX against M, from executed counts.", allow_abbrev=False)
    parser.add_argument("--n", type=int, default=1024, help="queries and keys (default 1024)")
    parser.add_argument("--d", type=int, default=32, help="columns of A1, A2, A3, X and Y (default 32)")
    parser.add_argument("--from", dest="first", type=int, help="smallest M (default d^2 / 64)")
    parser.add_argument("--to", dest="last", type=int, help="largest M (default n d)")
    parser.add_argument("--per-octave", type=int, default=1, help="values of M for each doubling (default 1)")
    parser.add_argument("--format", choices=["json", "csv"], default="json", help="default: json")
    o = parser.parse_args(arguments)
    if o.n < 1 or o.d < 1 or o.per_octave < 1:
        parser.error(f"--n {o.n} --d {o.d} --per-octave {o.per_octave}: give whole numbers from 1 on")
    first = max(16, o.d * o.d // 64) if o.first is None else o.first
    last = max(first, o.n * o.d, 4 * o.d * o.d) if o.last is None else o.last
    if not 4 <= first <= last:
        parser.error(f"--from {first} --to {last}: give 4 <= from <= to")
    # A power of two times 2^(k / per_octave), so that M = d^2 is among them where d is a power of two.
    steps = int(math.log2(last / first) * o.per_octave + 1e-6)
    lines = [line(o.n, o.d, math.floor(first * 2 ** (k / o.per_octave) + 0.5)) for k in range(steps + 1)]
    print(as_json(o.n, o.d, lines) if o.format == "json" else as_csv(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
