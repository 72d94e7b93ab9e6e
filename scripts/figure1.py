#!/usr/bin/env python3
"""Prints the data of Figure 1 and Table 1 of Li et al. (2024, arXiv 2410.09397), which redblue.plot.figure1 draws: words of dL/dX
against fast memory M, for their algorithms as printed, for redblue's repaired ones, and for the best, beside the lower bound.
It needs the Python package.

    scripts/figure1.py
    scripts/figure1.py --n 4096 --d 64 --per-octave 2 --format csv
"""

import argparse
import json
import sys

from redblue import InvalidProblem
from redblue._figure1 import COLUMNS, facts, line, sizes


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
    found = sizes(o.n, o.d, o.first, o.last, o.per_octave)
    if not found or found[0] < 4:
        parser.error(f"--from {o.first} --to {o.last}: give 4 <= from <= to")
    try:
        lines = [line(o.n, o.d, M) for M in found]
        print(json.dumps(facts(o.n, o.d, lines), indent=2) if o.format == "json" else as_csv(lines))
    except InvalidProblem as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main(sys.argv[1:])
