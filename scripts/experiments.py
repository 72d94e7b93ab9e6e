#!/usr/bin/env python3
"""Experiments on what the papers prove, with exact counts; docs/experiments.md says what each shows. They print JSON, and need
the Python package; --picture needs matplotlib.

    scripts/experiments.py forward     # words of attention and its lower bound against M, on both sides of d^2
    scripts/experiments.py product     # attention beside the product Q K^T alone
    scripts/experiments.py epochs      # scores that a run completes while it moves M words, beside the most there can be
    scripts/experiments.py strassen    # attention by Strassen's products beside plans and bound of class PA, for M up to d^2
"""

import argparse
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import redblue
from redblue._program import printed_by

#: Schedules whose traces name the rows of Q and of K that each score is made of.
TRACED = ("flash", "flash_pinned", "key_outer", "small_cache", "score_tiles", "naive")


def plan_of(n, d, M, *options):
    """What the program says of the plan with the fewest words, or of that of one schedule; None where none fits."""
    try:
        return json.loads(printed_by("plan", "--n", n, "--d", d, "--M", M, "--json", *options))
    except redblue.Error:
        return None


def words(plan):
    return None if plan is None else plan["plans"][plan["chosen"]]["io"]


def forward(n, d, M):
    """The best plan, the orders of FlashAttention and of a small cache, and the bound."""
    best = plan_of(n, d, M)
    if best is None:
        return None
    return {
        "best": words(best),
        "schedule": best["plans"][best["chosen"]]["schedule"],
        "flash": words(plan_of(n, d, M, "--schedule", "flash")),
        "small_cache": words(plan_of(n, d, M, "--schedule", "small_cache")),
        "bound": best["bound"]["words"],
    }


def product(n, d, M):
    """Attention, and the matrix of its scores alone, which is the product of n x d and d x n."""
    attention, scores = plan_of(n, d, M), plan_of(n, d, M, "--op", "scores")
    if attention is None or scores is None:
        return None
    found = {"attention": words(attention), "product": words(scores), "product_bound": scores["bound"]["words"]}
    return {**found, "attention_over_product": found["attention"] / found["product"]}


class Scores:
    """Which scores a trace completes, operation by operation."""

    OPERAND = re.compile(r"(t\d+|[A-Za-z_0-9]+#0)\[(\d+):(\d+),(\d+):(\d+)\]")

    def __init__(self, n, d):
        self.features = np.zeros((n, n), int)  # products that the score has so far
        self.d = d
        self.tiles = {}  # of each tile the rectangles that were read, with what they hold

    def operation(self, line):
        """(words moved, scores completed) of a line of a trace."""
        verb = line.split(" ", 1)[0]
        operands = [(name, *map(int, at)) for name, *at in self.OPERAND.findall(line)]
        moved = sum((b - a) * (d - c) for name, a, b, c, d in operands if "#" in name)
        if verb == "open":
            self.tiles[line.split()[1]] = []
        elif verb == "read":
            (tile, a, b, c, d), (array, row, _, col, _) = operands
            self.tiles[tile].append((a, b, c, d, array[:-2], row - a, col - c))
        elif verb == "update":  # the block is read, unless it is the first time, and written
            _, a, b, c, d = operands[0]
            moved += 0 if "first=1" in line else (b - a) * (d - c)
        return moved, self._completed(operands) if verb == "compute" else 0

    def _completed(self, operands):
        known = [part for operand in operands for part in self._parts(*operand)]
        done = 0
        for array, rows, cols in known:
            for other, keys, features in known:
                if (array, other, cols) == ("Q", "K", features):
                    self.features[rows[0] : rows[1], keys[0] : keys[1]] += cols[1] - cols[0]
                    done += int((self.features[rows[0] : rows[1], keys[0] : keys[1]] == self.d).sum())
        return done

    def _parts(self, name, a, b, c, d):
        if "#" in name:
            return [(name[:-2], (a, b), (c, d))]
        found = []
        for top, bottom, left, right, array, row, col in self.tiles[name]:
            rows, cols = (max(a, top), min(b, bottom)), (max(c, left), min(d, right))
            if rows[0] < rows[1] and cols[0] < cols[1]:
                found.append((array, (rows[0] + row, rows[1] + row), (cols[0] + col, cols[1] + col)))
        return found


def most_scores(n, d, available):
    """The most scores that can be completed with this many words, resident at first or read: s rows of Q and K give up to
    (s / 2)^2, and each word that is left may be the unfinished sum of one (docs/experiments.md)."""
    most = max((s // 2) * ((s + 1) // 2) + available - s * d for s in range(min(available // d, 2 * n) + 1))
    return min(most, n * n)


def epochs_of(n, d, M, schedule):
    """[words moved, scores completed] of each epoch: the operations until M words have moved."""
    try:
        trace = json.loads(printed_by("trace", "--n", n, "--d", d, "--M", M, "--schedule", schedule, "--json"))["operations"]
    except redblue.Error:
        return None
    scores, cut = Scores(n, d), [[0, 0]]
    for line in trace:
        if cut[-1][0] >= M:
            cut.append([0, 0])
        for i, amount in enumerate(scores.operation(line)):
            cut[-1][i] += amount
    if (scores.features != d).any():
        raise SystemExit(f"{schedule}: the trace does not show each score once")
    return cut


def epochs(n, d, M):
    """Scores that each schedule completes in its best epoch of M words, over the most that its words allow."""
    found = {}
    for schedule in TRACED:
        cut = epochs_of(n, d, M, schedule)
        if cut is None:
            continue
        moved, completed = max(cut, key=lambda one: one[1])
        limit = most_scores(n, d, M + moved)
        found[schedule] = {"epochs": len(cut), "moved": moved, "completed": completed, "limit": limit, "share": completed / limit}
        if any(done > most_scores(n, d, M + moved) for moved, done in cut):
            raise SystemExit(f"{schedule} at M = {M} completes more scores than any run can: the bound or this count is wrong")
    return found or None


#: The program that plans and counts examples/strassen.hpp.
FAST_PRODUCTS = Path(__file__).parents[1] / "build/release/examples/09_fast_products"


def strassen(n, d, M):
    """Attention by Strassen's products, the best plan, the bound of class PA, and what grows as the bound of fast products does:
    (n / d)^2 products of two d x d matrices for the scores, and as many for the output, with the constant 1."""
    try:
        done = subprocess.run([FAST_PRODUCTS, str(n), str(d), str(M)], capture_output=True, text=True)
    except OSError as e:
        raise SystemExit(f"{FAST_PRODUCTS}: {e.strerror}; cmake --build --preset release --target example_09_fast_products makes it") from None
    plain = plan_of(n, d, M)
    if done.returncode or plain is None:
        return None
    found, bound = json.loads(done.stdout)[0], plain["bound"]["words"]
    growth = 2 * (n / d) ** 2 * (d / math.sqrt(M)) ** math.log2(7) * M
    return {
        "strassen": found["words"],
        "tiling": found["tiling"],
        "best": words(plain),
        "schedule": plain["plans"][plain["chosen"]]["schedule"],
        "bound_of_class_pa": bound,
        "growth": growth,
        "strassen_over_bound_of_class_pa": found["words"] / bound,
        "strassen_over_growth": found["words"] / growth,
    }


EXPERIMENTS = {"forward": (forward, 4096, 128), "product": (product, 4096, 128), "epochs": (epochs, 64, 8), "strassen": (strassen, 65536, 4096)}


def draw(name, points, d, path):
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "redblue"
    import redblue.plot as plot

    ax = plot._axes(None)
    at = [point["M"] for point in points]
    columns = {
        "forward": ("best", "flash", "small_cache", "bound"),
        "product": ("attention", "product", "product_bound"),
        "strassen": ("strassen", "best", "bound_of_class_pa", "growth"),
    }.get(name, TRACED)
    for i, column in enumerate(columns):
        values = [point.get(column) for point in points]
        values = [v["share"] if isinstance(v, dict) else math.nan if v is None else v for v in values]
        ax.plot(at, values, label=column, **plot._style(i))
    ax.axvline(d * d, color="0.4", linewidth=0.8, linestyle=":")
    what = "scores of the best epoch, over the limit" if name == "epochs" else "words moved"
    ax.set(xscale="log", yscale="log", xlabel="fast memory M (words); dotted: M = d²", ylabel=what)
    ax.legend(frameon=False, fontsize="small")
    ax.figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--n", type=int, help="queries and keys (default 4096; epochs: 64, strassen: 65536)")
    parser.add_argument("--d", type=int, help="features (default 128; epochs: 8, strassen: 4096)")
    parser.add_argument("--picture", metavar="FILE", help="draw it, too: .svg, .pdf or .png")
    o = parser.parse_args(arguments)
    experiment, n, d = EXPERIMENTS[o.experiment]
    n, d = n if o.n is None else o.n, d if o.d is None else o.d
    if n < 1 or d < 1:
        parser.error(f"--n {n} --d {d}: give whole numbers from 1 on")
    # M from d^2 / 64 to 16 d^2; for Strassen, who pays where d^2 is far above M, from d^2 / 65536 to d^2
    steps = range(-32, 1) if o.experiment == "strassen" else range(-12, 9)
    sizes = [math.floor(d * d * 2 ** (k / 2) + 0.5) for k in steps]
    points = [{"M": M, "M_over_d2": M / d**2, **found} for M in sizes if M > 0 and (found := experiment(n, d, M)) is not None]
    print(json.dumps({"schema": "redblue.experiment/1", "experiment": o.experiment, "n": n, "d": d, "points": points}, indent=2))
    if o.picture:
        draw(o.experiment, points, d, o.picture)


if __name__ == "__main__":
    main(sys.argv[1:])
