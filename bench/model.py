#!/usr/bin/env python3
"""Modelled against measured time, for every schedule on a grid of shapes.

  bench/model.py --redblue build/release/redblue > model.csv        # columns: HEADER
  bench/model.py --redblue build/release/redblue --summary           # per schedule: median and worst ratio

Each cell: `redblue run --objective time --schedule NAME`, REPEATS times on one set of N(0,1) inputs; the median of the
program's own seconds, which do not hold the reading and writing of files. Needs numpy, and a hardware file (redblue
doctor, or --machine FILE).
"""

import argparse
import csv
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

HEADER = ["op", "n", "d", "heads", "causal", "schedule", "tiling", "modelled_s", "measured_s", "ratio"]


def redblue(program, *args):
    """The JSON of a command, or None where the schedule cannot do it."""
    done = subprocess.run([program, *args, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 2):
        sys.exit(f"{' '.join(args)}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else None


def write_inputs(folder, names, heads, n, d):
    """A .npy file for each input tensor; the options that name them."""
    random = numpy.random.default_rng(1)
    options = []
    for name in names:
        shape = [1, heads, n] if name == "lse" else [1, heads, n, d]
        file = folder / f"{name}.npy"
        numpy.save(file, random.standard_normal(shape, dtype=numpy.float32))
        options += [f"--{name}", str(file)]
    return options


def forward_outputs(program, folder, inputs, causal):
    """O and lse of the inputs, as a backward pass wants them."""
    outputs = ["--o", str(folder / "o.npy"), "--lse", str(folder / "lse.npy")]
    if redblue(program, "run", *inputs, *outputs, "--M", "100000", *causal) is None:
        sys.exit("the forward pass that backward needs failed")
    return outputs


def cells(args):
    machine = ["--machine", args.machine] if args.machine else []
    for op, n, d, causal in itertools.product(args.op, args.n, args.d, (False, True)):
        masked = ["--causal"] if causal else []
        sizes = ["--op", op, "--n", str(n), "--d", str(d), "--heads", str(args.heads), *masked]
        plan = redblue(args.redblue, "plan", *sizes, "--objective", "time", *machine)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            files = write_inputs(folder, ["q", "k", "v"], args.heads, n, d)
            if op == "backward":
                files += forward_outputs(args.redblue, folder, files, masked)
                files += write_inputs(folder, ["do"], args.heads, n, d)
                files += [x for t in ("dq", "dk", "dv") for x in (f"--{t}", str(folder / f"{t}.npy"))]
            else:
                files += ["--o", str(folder / "o.npy"), "--lse", str(folder / "lse.npy")]
            for schedule in (row["schedule"] for row in plan["plans"] if row["stable"] and row["fits"]):
                command = ["run", "--op", op, *masked, *files, "--objective", "time", "--schedule", schedule, *machine]
                runs = [redblue(args.redblue, *command) for _ in range(args.repeats)]
                if None in runs:
                    continue
                tiling = " ".join(f"{k}={v}" for k, v in runs[0]["tiling"].items())
                modelled = runs[0]["modelled_time"]["total_s"]
                measured = statistics.median(r["seconds"] for r in runs)
                yield [op, n, d, args.heads, int(causal), schedule, tiling, modelled, measured, measured / modelled]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redblue", default="build/release/redblue", help="the program")
    parser.add_argument("--machine", help="hardware file (default: this machine's)")
    parser.add_argument("--op", nargs="+", default=["forward", "backward"])
    parser.add_argument("--n", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--d", nargs="+", type=int, default=[32, 64, 128, 256])
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--summary", action="store_true", help="per schedule only")
    args = parser.parse_args()
    if not args.summary:
        writer = csv.writer(sys.stdout)
        writer.writerow(HEADER)
        for cell in cells(args):
            writer.writerow(cell)
            sys.stdout.flush()
        return
    ratios = {}
    for cell in cells(args):
        ratios.setdefault((cell[0], cell[5]), []).append(cell[-1])
    for (op, schedule), r in sorted(ratios.items()):
        print(f"{op} {schedule}: measured / modelled {statistics.median(r):.2f}, from {min(r):.2f} to {max(r):.2f}")


if __name__ == "__main__":
    main()
