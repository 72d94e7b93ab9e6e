"""Under masks the command line plans random problems exactly as a planner of its own does: every sum over blocks is
added up row by row from the pairs that see each other, every tiling is tried, and the formulas are those of the theory
notes 2j.

REDBLUE_CLI is the program to test; REDBLUE_SEED (default 1) picks the problems and shows in the name of every test.
"""

import json
import random
from itertools import product

import pytest

from program import SEED, needs_program, redblue

pytestmark = needs_program


def c(a, b):
    return -(-a // b)


class Piece:
    """Rows and keys that hang together, counted from 0: row i sees the keys lo <= j < hi of intervals[i]."""

    def __init__(self, intervals, n_k):
        self.rows, self.n, self.k = intervals, len(intervals), n_k
        self.nnz = sum(hi - lo for lo, hi in intervals)
        self.widest = max(hi - lo for lo, hi in intervals)

    def A(self, a):
        """Keys that blocks of a rows see; blocks are cut from the last row."""
        ends = range(self.n, 0, -a)
        return sum(self.rows[end - 1][1] - self.rows[max(0, end - a)][0] for end in ends)

    def blocks(self, a):
        """The rows of each block of a rows, and the keys that it sees."""
        for end in range(self.n, 0, -a):
            begin = max(0, end - a)
            yield end - begin, self.rows[end - 1][1] - self.rows[begin][0]

    def kept(self, a):
        """The most keys that a block of a rows and the next one both see."""
        ends = range(self.n - a, 0, -a)
        return max((self.rows[end - 1][1] - self.rows[end][0] for end in ends), default=0)

    def staying(self, a, rho):
        """Of blocks of a rows where rho keys stay: the keys that are loaded or stream past, and for each block its rows
        and whether any stream. The first keys stay if all rows see the first, else the last ones of a block stay for
        the next one."""
        first_seen_by_all = self.rows[-1][0] == 0
        visits, blocks, stay = 0, [], set()
        for end in reversed(range(self.n, 0, -a)):
            begin = max(0, end - a)
            keys = range(self.rows[begin][0], self.rows[end - 1][1])
            later = set(range(rho)) if first_seen_by_all else set(keys[max(0, len(keys) - rho):])
            visits += len({*keys, *(later if not blocks else ())} - stay)
            blocks.append((end - begin, len({*keys} - stay - later) > 0))
            stay = later
        return visits, blocks

    def seeing(self, b):
        """The rows that see each block of b keys, from the first to the one after the last."""
        for j in range(0, self.k, b):
            rows = [i for i, (lo, hi) in enumerate(self.rows) if hi > j and lo < min(j + b, self.k)]
            yield rows[0], rows[-1] + 1

    def kept_rows(self, b):
        """The most rows that see a block of b keys and the next one."""
        blocks = list(self.seeing(b))
        return max((one[1] - after[0] for one, after in zip(blocks, blocks[1:])), default=0)

    def strip(self, rows, keys):
        """Pairs of these rows and keys."""
        return sum(max(0, min(self.rows[i][1], keys[-1] + 1) - max(self.rows[i][0], keys[0])) for i in rows)

    def row_strips(self, a):
        """The rows of each block of a rows, and its pairs."""
        for end in range(self.n, 0, -a):
            rows = range(max(0, end - a), end)
            yield len(rows), self.strip(rows, range(self.k))

    def key_strips(self, b):
        """The keys of each block of b keys, and its pairs."""
        for begin in range(0, self.k, b):
            keys = range(begin, min(self.k, begin + b))
            yield len(keys), self.strip(range(self.n), keys)

    def B(self, b):
        """Rows that see a key of a block of b keys."""
        return sum(
            sum(1 for lo, hi in self.rows if hi > j and lo < min(j + b, self.k)) for j in range(0, self.k, b)
        )


def pieces_of(n_q, n_k, lo, hi, prefix, group):
    """The pieces of a mask, and how many rows and keys none of them holds."""
    rows = []
    for row in range(n_q * group):
        p = row // group
        end = n_k if hi is None else min(n_k, max(p + hi, prefix, 0))
        first = 0 if lo is None else min(max(0, p + lo), n_k)
        rows.append((first, max(first, end)))
    found, run = [], []
    for row in [*rows, (n_k, n_k)]:
        if run and (row[0] >= run[-1][1] or row[0] == row[1]):
            start = run[0][0]
            found.append(Piece([(a - start, b - start) for a, b in run], run[-1][1] - start))
            run = []
        if row[0] < row[1]:
            run.append(row)
    return found, len(rows) - sum(x.n for x in found), n_k - sum(x.k for x in found)


def F_mm(m, n, b1, b2, rows=0):
    x, y = min(b1, m), min(b2, n)
    return x * y + min(x, y) + 1 + rows * x


def scores(x, w, tile, stats, again=False):
    """(reads, footprint) of a score phase: (a, b), or (a, None) for a panel."""
    a, b = tile
    if b is None:
        return w * (x.n + x.A(a)), min(a, x.n) * (w + stats + 1) + 1
    return w * (x.A(a) + x.B(b)), F_mm(x.n, x.k, a, b, stats)


def rows_product(x, w, tile, stats=0):
    b1, b2 = tile
    return c(w, b2) * x.nnz + w * x.A(b1), F_mm(x.n, w, b1, b2, stats)


def keys_product(x, w, tile):
    b1, b2 = tile
    return c(w, b2) * x.nnz + w * x.B(b1), F_mm(x.k, w, b1, b2)


# Each schedule: its phases, as (name, what may be chosen, (reads, writes, footprint) of a piece for a choice).


def forward(d, v):
    grid = lambda x: [(a, b) for a in range(1, x.n + 1) for b in [None, *range(1, x.k + 1)]]
    tiles = lambda x: [(a, b) for a in range(1, x.n + 1) for b in range(1, x.k + 1)]
    values = lambda x: [(a, b) for a in range(1, x.n + 1) for b in range(1, v + 1)]
    rows, keys = lambda x: range(1, x.n + 1), lambda x: range(1, x.k + 1)

    def flash_pinned(x, t):
        rho = min(t[1], x.k if x.rows[-1][0] == 0 else max(seen for _, seen in x.blocks(t[0])))
        visits, blocks = x.staying(t[0], rho)
        footprint = rho * (d + v) + max(n * (d + v + 3) + streams for n, streams in blocks)
        return x.n * d + visits * (d + v), x.n * (v + 1), footprint

    return {
        "flash": [(rows, lambda x, a: (x.n * d + (d + v) * x.A(a), x.n * (v + 1), min(a, x.n) * (d + v + 3) + 1))],
        "flash_pinned": [(lambda x: product(range(1, x.n + 1), range(x.k + 1)), flash_pinned)],
        "ring": [(rows, lambda x, a: (x.n * d + x.k * (d + v), x.n * (v + 1),
                                      max(1, x.kept(a)) * (d + v) + min(a, x.n) * (d + v + 3)))],
        "strips": [(rows, lambda x, a: (x.n * d + x.A(a) * (d + v), x.n * (v + 1),
                                        max(pairs + n for n, pairs in x.row_strips(a)) + 1))],
        "column_split": [(
            lambda x: [(a, h) for a in rows(x) for h in range(2, v + 1)],
            lambda x, t: (t[1] * x.n * d + (t[1] * d + v) * x.A(t[0]), x.n * (v + 1),
                          min(t[0], x.n) * (d + c(v, t[1]) + 3) + 1),
        )],
        "key_outer": [(keys, lambda x, b: (x.k * (d + v) + d * x.B(b) + (v + 1) * (x.B(b) - x.n), (v + 1) * x.B(b),
                                           min(b, x.k) * (d + v + 1) + 4))],
        "small_cache": [
            (grid, lambda x, t: (scores(x, d, t, 2)[0], x.nnz + x.n, scores(x, d, t, 2)[1])),
            (values, lambda x, t: (x.n + rows_product(x, v, t)[0], x.n * v, rows_product(x, v, t, 2)[1])),
        ],
        "score_tiles": [(tiles, lambda x, t: (d * x.B(t[1]) + (d + v) * x.A(t[0]) + v * (x.B(t[1]) - x.n),
                                              v * x.B(t[1]) + x.n,
                                              min(t[0], x.n) * min(t[1], x.k) + 4 * min(t[0], x.n) + 1))],
        "naive": [
            (tiles, lambda x, t: (scores(x, d, t, 0)[0], x.nnz, scores(x, d, t, 0)[1])),
            (lambda x: (1, 2), lambda x, rho: (rho * x.nnz, x.nnz, x.widest + 2 if rho == 1 else 3)),
            (values, lambda x, t: (rows_product(x, v, t)[0], x.n * v, rows_product(x, v, t)[1])),
        ],
    }


def backward(d, v):
    grid = lambda x: [(a, b) for a in range(1, x.n + 1) for b in [None, *range(1, x.k + 1)]]
    rows, keys = lambda x: range(1, x.n + 1), lambda x: range(1, x.k + 1)
    by = lambda sizes, w: lambda x: list(product(sizes(x), range(1, w + 1)))
    grid_of_blocks = lambda x: list(product(rows(x), keys(x)))
    dots = (lambda x: [1], lambda x, _: (2 * x.n * v, x.n, 3))
    P = (grid, lambda x, t: (x.n + scores(x, d, t, 1)[0], x.nnz, scores(x, d, t, 1)[1]))
    dS = (grid, lambda x, t: (x.n + x.nnz + scores(x, v, t, 1)[0], x.nnz, scores(x, v, t, 1)[1]))
    dQ = (by(rows, d), lambda x, t: (rows_product(x, d, t)[0], x.n * d, rows_product(x, d, t)[1]))
    dK = (by(keys, d), lambda x, t: (keys_product(x, d, t)[0], x.k * d, keys_product(x, d, t)[1]))
    dV = (by(keys, v), lambda x, t: (keys_product(x, v, t)[0], x.k * v, keys_product(x, v, t)[1]))
    pass_keys = lambda x, b: (x.k * (d + v) + (d + v + 2) * x.B(b), x.k * (d + v),
                              min(b, x.k) * (2 * d + 2 * v + 2) + d + 3)
    pass_rows = lambda x, a: (x.n * (d + 2 * v + 1) + (d + v) * x.A(a), x.n * d, min(a, x.n) * (2 * d + v + 4) + d + 1)

    def more(phase, reads, writes):
        def cost(x, t):
            r, w, f = phase(x, t)
            return r + reads(x, t), w + writes(x, t), f
        return cost

    def ring(x, t):
        rows, columns = t
        of_block = lambda n, kappa: n * kappa + max(n * (d + kappa + max(columns, 1)), n * d)
        most = max(kappa for _, kappa in x.blocks(rows))
        return (x.n + x.k) * (d + v), x.n * d + x.k * (d + v), 2 * most * (d + v) + max(of_block(*b) for b in x.blocks(rows))

    def ring_two_pass(x, t):
        a, b = t
        by_rows = list(x.blocks(a))
        by_keys = [(min(b, x.k - j * b), end - begin) for j, (begin, end) in enumerate(x.seeing(b))]
        held = lambda blocks, w: max(met for _, met in blocks) * w + max(n * (2 * met + 1) for n, met in blocks)
        return (2 * (x.n + x.k) * (d + v) + 2 * x.n, x.n * (d + 1) + x.k * (d + v),
                max(held(by_rows, d + v), held(by_keys, d + v + 2)))

    zero = lambda x, t: 0
    return {
        "ringB1": [(by(rows, v), ring)],
        "ringB2": [(keys, lambda x, b: (x.n * (d + 2 * v + 1) + x.k * (d + v), x.n * d + x.k * (d + v),
                                        max(1, x.kept_rows(b)) * (2 * d + v + 2) + min(b, x.k) * (2 * d + 2 * v + 2)))],
        "ringB3": [(grid_of_blocks, ring_two_pass)],
        "strips": [
            (rows, lambda x, a: (x.n * (d + v) + x.A(a) * (2 * d + v), 2 * x.nnz + x.n * d,
                                 max(2 * pairs + n for n, pairs in x.row_strips(a)) + 1)),
            (keys, lambda x, b: (2 * x.nnz + x.B(b) * (d + v), x.k * (d + v),
                                 max(pairs + n for n, pairs in x.key_strips(b)) + 1)),
        ],
        "e1": [dots, (keys, more(pass_keys, lambda x, b: d * (x.B(b) - x.n), lambda x, b: d * x.B(b)))],
        "e2": [(rows, more(pass_rows, lambda x, a: (x.A(a) - x.k) * (d + v), lambda x, a: x.A(a) * (d + v)))],
        "e3": [(rows, more(pass_rows, zero, lambda x, a: x.n)), (keys, pass_keys)],
        "e4": [dots, (keys, more(pass_keys, zero, lambda x, b: x.nnz)), dQ],
        "e5": [dots, P, dV, dS, dQ, dK],
        "e6": [dots, P, (keys, lambda x, b: (x.k * v + (v + 1) * x.B(b) + x.nnz, x.nnz + x.k * v,
                                             min(b, x.k) * (2 * v + 2) + 2)), dQ, dK],
    }


def least(phases, pieces, M):
    """The fewest words of all phases, each with its best tiling that fits all pieces; None if one has none."""
    total = 0
    for choices, cost in phases:
        largest = max(pieces, key=lambda x: x.n * x.k)
        found = []
        for t in choices(largest):
            costs = [cost(x, t) for x in pieces]
            if max(f for _, _, f in costs) <= M:
                found.append(sum(r + w for r, w, _ in costs))
        if not found:
            return None
        total += min(found)
    return total


def random_mask(index):
    rng = random.Random(f"masks/{SEED}/{index}")
    n_q, n_k, d, v, group = rng.randint(1, 12), rng.randint(1, 12), rng.randint(1, 6), rng.randint(1, 6), rng.choice([1, 1, 2, 3])
    causal, offset = rng.random() < 0.6, rng.randint(-6, 8)
    left = rng.choice([None, rng.randint(0, 8)])
    right = None if causal else rng.choice([None, rng.randint(0, 6)])
    if not causal and left is None and right is None:
        causal = True
    prefix = rng.randint(0, n_k) if (causal or right is not None) and rng.random() < 0.25 else 0
    return n_q, n_k, d, v, group, causal, offset, left, right, prefix, rng.randint(3, 160)


@pytest.mark.parametrize("index", range(150), ids=lambda i: f"seed={SEED}-{i}")
@pytest.mark.parametrize("operation", ["forward", "backward"])
def test_plan(operation, index):
    n_q, n_k, d, v, group, causal, offset, left, right, prefix, M = random_mask(index)
    options = {"op": operation, "nq": n_q, "nk": n_k, "d": d, "dv": v, "M": M, "heads": group, "kv-heads": 1,
               "causal-offset": offset}
    if left is not None or right is not None:
        options["window"] = f"{-1 if left is None else left},{-1 if right is None else right}"
    if prefix:
        options["prefix"] = prefix
    arguments = [word for name, word in options.items() for word in (f"--{name}", word)]
    done = redblue("plan", *arguments, *(["--causal"] if causal else []), "--json")
    lo = None if left is None else offset - left
    hi = offset + 1 if causal else None if right is None else offset + right + 1
    pieces, rows, keys = pieces_of(n_q, n_k, lo, hi, prefix, group)
    blind = rows * (v + 1) if operation == "forward" else rows * d + keys * (d + v)
    schedules = (forward if operation == "forward" else backward)(d, v)
    if not pieces:  # zeros are written, and nothing is read
        words = {plan["schedule"]: plan["io"] for plan in json.loads(done.stdout)["plans"]}
        assert words.pop("naive", blind - rows) == blind - rows and set(words.values()) == {blind}
        return
    wanted = {name: least(phases, pieces, M) for name, phases in schedules.items()}
    if lo is None or n_q - 1 + lo <= 0:
        rings = ["ring"] if operation == "forward" else ["ringB1", "ringB2", "ringB3"]
        for name in [*rings, "strips"]:  # they are for windows
            wanted.pop(name)
    if done.returncode != 0:
        assert not any(wanted.values()), (done.stderr, wanted)
        return
    plans = json.loads(done.stdout)["plans"]
    found = {plan.get("label", plan["schedule"]) if operation == "backward" else plan["schedule"]: plan for plan in plans}
    for name, words in wanted.items():
        if words is None:
            assert name not in found, (name, found.get(name))
        else:  # naive is planned without lse, which it alone need not write
            less = rows if name == "naive" else 0
            assert found[name]["io"] == words + blind - less, (done.args, name, found[name], words + blind - less)
