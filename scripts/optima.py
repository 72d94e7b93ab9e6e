#!/usr/bin/env python3
"""The least I/O of graphs in files of HyperDAG_DB, over all M, as a table: a number is an optimum that is proved, two
numbers are a bracket at the limit of time.

    scripts/optima.py --redblue build/release/redblue --seconds 20 graphs/*.txt
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

RULES = {
    "once": ["--once"],
    "recomputing": [],
    "partial": ["--rules", "partial"],
}


def solved(redblue, path, rules, seconds):
    """The results for each M, or the reason why there are none."""
    command = [redblue, "solve", "--hdag", str(path), "--json", "--seconds", str(seconds), *RULES[rules]]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return run.stderr.strip()
    return json.loads(run.stdout)["results"]


def cell(result):
    return str(result["upper"]) if result["proved"] else f"{result['lower']}-{result['upper']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--redblue", default="redblue", help="the program")
    parser.add_argument("--seconds", type=float, default=20, help="of processor time for each M")
    parser.add_argument("--rules", choices=sorted(RULES), action="append", help="all of them unless given")
    arguments = parser.parse_args()
    print("| graph | rules | least M | words at that M, the next, ... |\n|---|---|---|---|")
    for path in arguments.files:
        for rules in arguments.rules or RULES:
            results = solved(arguments.redblue, path, rules, arguments.seconds)
            if isinstance(results, str):
                print(f"| {path.stem} | {rules} | - | {results} |")
            else:
                print(f"| {path.stem} | {rules} | {results[0]['M']} | {', '.join(map(cell, results))} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
