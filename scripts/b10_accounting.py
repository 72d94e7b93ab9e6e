#!/usr/bin/env python3
"""The accounting of Theorem B10 (docs/proofs/b10.md, steps 1 to 5) on executed runs, word by word, in fractions.

    b10_accounting.py [--redblue build/release/redblue] [--cuts 200]

Takes the traces of redblue's dense backward schedules apart into words, trims them, cuts them at random places and by
the rule of step 5, and checks in every segment what the proof says of it: payments at the ends fit M, F <= B^(3/2)/
(3 sqrt 6), one operation raises the charges by 3 at most; and of the run that the charges fit its I/O. Prints for each
schedule the smallest slack of that sum, and ends with an assertion where something fails."""

import argparse
import random
import re
import subprocess
from collections import defaultdict
from fractions import Fraction
from itertools import product

INPUTS, OUTPUTS, PAIRS = {"Q", "K", "V", "dO"}, {"dQ", "dK", "dV"}, {"S", "D"}


class Run:
    """A run as a list of operations on copies of words. A copy is an item, what went into it, and where it was made.

    Items: ("Q", i, t) and the other inputs, ("S", i, j), ("D", i, j), ("dQ", i, t) and the other outputs; None for
    words that are free. An operation is (kind, operands, result, product), a product (family, i, j, t)."""

    def __init__(self, n_q, n_k, d, d_v):
        self.n_q, self.n_k, self.d, self.d_v = n_q, n_k, d, d_v
        self.ops, self.copies = [], []

    def do(self, kind, operands, item, content=frozenset(), made=None):
        self.copies.append((item, content))
        self.ops.append((kind, tuple(operands), len(self.copies) - 1, made))
        return len(self.copies) - 1

    def load(self, item):
        return self.do("read", (), item)

    def move(self, kind, copy):
        return self.do(kind, (copy,), *self.copies[copy])

    def add(self, made, factors, word=None):
        """One product, added to `word` where it is not None."""
        family, i, j, t = made
        item = {"dQ": ("dQ", i, t), "dV": ("dV", j, t), "dK": ("dK", j, t)}.get(family, (family, i, j))
        mark = (i, j) if family in OUTPUTS else t
        before = frozenset() if word is None else self.copies[word][1]
        assert mark not in before, "a product is added twice"
        operands = [*factors] if word is None else [word, *factors]
        return self.do("product", operands, item, before | {mark}, made)

    def complete(self, item, content):
        most = {"S": self.d, "D": self.d_v, "dQ": self.n_k, "dK": self.n_q, "dV": self.n_q}[item[0]]
        return len(content) == most


class Trimmed:
    """What is left of a run when only steps with a path to a final write stay; who is resident when; what is designated."""

    def __init__(self, run, once=False):
        """once: account as for runs without recomputation."""
        self.run, self.once, copies = run, once, run.copies
        final = {}
        for k, (kind, _, result, _) in enumerate(run.ops):
            item = copies[result][0]
            if kind == "write" and item and item[0] in OUTPUTS and run.complete(*copies[result]):
                final.setdefault(item, k)
        size = run.n_q * run.d + run.n_k * (run.d + run.d_v)
        assert len(final) == size, "an output is not written"
        maker = {result: k for k, (_, _, result, _) in enumerate(run.ops)}
        useful, todo = set(), list(final.values())
        while todo:
            k = todo.pop()
            if k not in useful:
                useful.add(k)
                todo += [maker[x] for x in run.ops[k][1]]
        self.ops = [run.ops[k] for k in sorted(useful)]
        self.O_n, self.N = size, run.n_q * run.n_k
        formed = [made for _, _, _, made in self.ops if made and made[0] in PAIRS]
        assert not once or len(formed) == len(set(formed)), "a product is executed again"
        self.born, self.last = {}, {}
        for k, (_, operands, result, _) in enumerate(self.ops):
            self.born[result] = k
            for x in operands:
                self.last[x] = k
        self.slow = {result for kind, _, result, _ in self.ops if kind == "write"}
        self.io = sum(kind in ("read", "write") for kind, _, _, _ in self.ops)
        self.lives = defaultdict(list)  # item -> lives of its copies in fast memory
        for x, k in self.born.items():
            if x not in self.slow and copies[x][0]:
                self.lives[copies[x][0]].append((k, self.last[x]))
        self.peak = max(self.words_at(cut) for cut in range(len(self.ops) + 1))
        self.first = {}  # pair item -> operation of its first completion
        self.designated, self.designated_products = defaultdict(list), {}
        for k, (_, _, result, _) in enumerate(self.ops):
            item, content = copies[result]
            if item and item[0] in PAIRS and item not in self.first and run.complete(item, content):
                self.first[item] = k
                self.designate(item, result)

    def designate(self, item, complete):
        """A path from one product of each level to the completion."""
        last_step = {}
        for level in self.run.copies[complete][1]:
            x = complete
            while True:
                _, operands, _, made = self.ops[self.born[x]]
                if made and made[0] == item[0] and made[3] == level:
                    self.designated_products[self.born[x]] = made
                    last_step.setdefault(x, self.born[x])
                    break
                before = next(y for y in operands if self.run.copies[y][0] == item and level in self.run.copies[y][1])
                last_step[before] = max(last_step.get(before, -1), self.born[x])
                x = before
        self.designated[item] = [(self.born[x], k) for x, k in last_step.items() if x not in self.slow]

    @staticmethod
    def resident(lives, cut):
        return any(born < cut <= last for born, last in lives)

    def words_at(self, cut):
        return sum(born < cut <= last for lives in self.lives.values() for born, last in lives)

    def segment(self, p, q, s, a, c):
        """(B, what words at the start pay, at the end, charges, F, charges that products of F pay) of the operations
        p <= k < q."""
        run, resident = self.run, self.resident
        weight = {"S": 2 * (a * s) ** 2, "D": 2 * (c * s) ** 2}
        value = {"S": a * s, "D": c * s}
        start = end = charges = B = F = paid_by_products = Fraction(0)
        read, uses, touched = defaultdict(int), defaultdict(int), set()
        for k in range(p, q):
            kind, _, result, made = self.ops[k]
            item = run.copies[result][0]
            if kind == "read" and item:
                read[item] += 1
            if made:
                if made[0] in OUTPUTS:
                    F += s
                    touched.add(item)
                    uses[("S" if made[0] == "dV" else "D", made[1], made[2])] += 1
                elif k in self.designated_products:
                    F += value[made[0]]
                    touched.add(item)
        for item in {x for x in self.lives if x[0] in INPUTS and (read[x] or resident(self.lives[x], p))}:
            B += 1
            paid = resident(self.lives[item], p)
            start += paid
            charges += not paid
        for item in [x for x in touched if x[0] in OUTPUTS]:
            B += 2
            at = resident(self.lives[item], p), resident(self.lives[item], q)
            start += at[0]
            end += at[1]
            charges += 2 - sum(at)
        for item in uses.keys() | {x for x in touched if x[0] in PAIRS}:
            whole = weight[item[0]]
            if item in touched:
                ends = self.designated[item]
                if self.once and p <= self.first[item] < q:  # any word of the pair pays at the end
                    ends = self.lives[item]
                    if uses[item] == (run.d_v if item[0] == "S" else 2 * run.d):
                        F += Fraction(2, 5) * s * uses[item]
                        paid_by_products += s * s
                at = resident(self.designated[item], p), resident(ends, q)
                B += whole
                start += at[0] * whole / 2
                end += at[1] * whole / 2
                charges += (2 - sum(at)) * whole / 2
            elif resident(self.lives[item], p):
                B += s * s
                start += s * s
            elif read[item] or self.first[item] >= p:
                B += s * s
                charges += s * s
            else:  # a scratch event: all its products are in the segment
                assert not self.once
                levels = {made[3] for _, _, _, made in self.ops[p:q] if made and made[:3] == item}
                assert len(levels) == (run.d if item[0] == "S" else run.d_v), "a use without a complete word"
                B += whole
                charges += whole
                paid_by_products += whole
                F += len(levels) * value[item[0]]
        return B, start, end, charges, F, paid_by_products

    def check(self, cuts, s, a, c, M):
        """The slack of step 3; asserts what the steps say of each segment."""
        total = by_products = Fraction(0)
        assert self.peak <= M
        for p, q in zip([0, *cuts], [*cuts, len(self.ops)]):
            B, start, end, charges, F, paid = self.segment(p, q, s, a, c)
            assert B == start + end + charges
            assert start <= self.words_at(p) and end <= self.words_at(q)
            assert 54 * F * F <= B**3, "Lemma L"
            total += charges
            by_products += paid
        credit = 2 * s * s if self.once else 2 * s * s * (a * a + c * c)
        slack = self.io + self.O_n + credit * self.N + by_products - total
        assert slack >= 0, "step 3"
        return slack

    def cut_by_rule(self, s, a, c, M):
        """The cuts of step 5: after the first operation with charges of 4M or more."""
        cuts, p, before = [], 0, Fraction(0)
        for q in range(1, len(self.ops) + 1):
            charges = self.segment(p, q, s, a, c)[3]
            assert charges <= before + 3, "one operation raises the charges by more than 3"
            before = charges
            if charges >= 4 * M and q < len(self.ops):
                cuts.append(q)
                p, before = q, Fraction(0)
        return cuts


# ---- Traces of redblue, word by word ----

BLOCK = re.compile(r"(?:t(\d+)|(\w+)#0)\[(\d+):(\d+),(\d+):(\d+)\]")


class Expanded:
    """A trace (docs/machines.md has the form) of a dense backward schedule as a Run."""

    def __init__(self, run, text):
        self.run, self.fast, self.slow = run, {}, {}
        for line in text.splitlines():
            verb, _, rest = line.partition(" ")
            blocks = [(int(m[1]) if m[1] else m[2], range(int(m[3]), int(m[4])), range(int(m[5]), int(m[6])))
                      for m in BLOCK.finditer(rest)]
            if verb == "read":
                for tile, place in zip(self.cells(blocks[0]), self.cells(blocks[1])):
                    self.fast[tile] = self.fetch(place)
            elif verb == "write":
                for place, tile in zip(self.cells(blocks[0]), self.cells(blocks[1])):
                    self.slow[place] = self.store(self.fast[tile])
            elif verb in ("compute", "update"):
                getattr(self, rest.split()[0].partition("(")[0])(rest, *blocks)

    @staticmethod
    def cells(block):
        name, rows, cols = block
        return [(name, r, c) for r in rows for c in cols]

    def fetch(self, place):
        if place in self.slow:
            return self.run.move("read", self.slow[place])
        name, r, c = place
        return self.run.load((name, r, c) if name in INPUTS else None)

    def store(self, copy):
        return self.run.move("write", copy)

    def word(self, cell):
        """A resident word, or the next one of a stream."""
        return self.fast[cell] if isinstance(cell[0], int) else self.fetch(cell)

    def item(self, copy):
        return self.run.copies[copy][0]

    def multiply(self, x, y, cell):
        """cell += x y, whatever product that is."""
        u, v = self.item(x), self.item(y)
        if u[0] in PAIRS:
            x, y, u, v = y, x, v, u
        if v[0] in PAIRS:  # an input word times P or dS
            _, i, j = v
            family = {"dO": "dV", "K": "dQ", "Q": "dK"}[u[0]]
            assert self.run.complete(*self.run.copies[y]) and v[0] == ("S" if family == "dV" else "D")
            made = family, i, j, u[2]
        else:
            row, column = (u, v) if u[0] in ("Q", "dO") else (v, u)
            assert row[2] == column[2] and row[0] + column[0] in ("QK", "dOV")
            made = "S" if row[0] == "Q" else "D", row[1], column[1], row[2]
        self.fast[cell] = self.run.add(made, (x, y), self.fast.get(cell))

    def zero(self, _, tile):
        for cell in self.cells(tile):
            self.fast[cell] = None

    def scores(self, text, tile, q, k):
        self.zero(text, tile)
        self.gemm("transpose_a=0,transpose_b=1", tile, q, k)

    @staticmethod
    def factors(text, left, right):
        """How many products one word of the result has, and the words of both factors: a(i, m), b(m, j)."""
        swap = [f"transpose_{x}=1" in text for x in "ab"]

        def a(i, m):
            return (left[0], left[1][m], left[2][i]) if swap[0] else (left[0], left[1][i], left[2][m])

        def b(m, j):
            return (right[0], right[1][j], right[2][m]) if swap[1] else (right[0], right[1][m], right[2][j])

        return len(left[1] if swap[0] else left[2]), a, b

    def gemm(self, text, tile, left, right):
        depth, a, b = self.factors(text, left, right)
        name, rows, cols = tile
        streams_left = not isinstance(left[0], int)
        for m in range(depth):  # each word of a stream meets all words of the other factor, and goes
            for k, outer in enumerate(rows if streams_left else cols):
                x = self.word(a(k, m) if streams_left else b(m, k))
                for h, inner in enumerate(cols if streams_left else rows):
                    cell = (name, outer, inner) if streams_left else (name, inner, outer)
                    self.multiply(x, self.word(b(m, h) if streams_left else a(h, m)), cell)

    def gemm_over(self, text, block, left, right):
        depth, a, b = self.factors(text, left, right)
        name, rows, cols = block
        for (i, row), (j, col) in product(enumerate(rows), enumerate(cols)):
            place, passing = (name, row, col), ("passing",)
            self.fast[passing] = None if "first=1" in text else self.fetch(place)
            for m in range(depth):
                self.multiply(self.word(a(i, m)), self.word(b(m, j)), passing)
            self.slow[place] = self.store(self.fast[passing])

    def value_gradients(self, _, dp, dV, p, v, dO):
        for r, row in enumerate(dO[1]):
            for t, col in enumerate(dO[2]):
                word = self.word((dO[0], row, col))
                for j in range(len(dp[2])):
                    self.multiply(word, self.fast[v[0], v[1][j], v[2][t]], (dp[0], dp[1][r], dp[2][j]))
                    self.multiply(word, self.fast[p[0], p[1][r], p[2][j]], (dV[0], dV[1][j], dV[2][t]))

    def weights(self, _, tile, _statistics):
        for cell in self.cells(tile):
            x = self.fast[cell]
            self.fast[cell] = self.run.do("make", (x,), *self.run.copies[x])

    def score_gradient(self, _, dp, p, D):
        for cell, other in zip(self.cells(dp), self.cells(p)):
            x, row = self.fast[cell], (D[0], D[1][cell[1] - dp[1][0]], D[2][0])
            self.fast[cell] = self.run.do("make", (x, self.word(other), self.fast[row]), *self.run.copies[x])

    def row_dots(self, _, tile, dO, o):
        for row, cell in zip(range(len(dO[1])), self.cells(tile)):
            words = [self.word((x[0], x[1][row], col)) for x in (dO, o) for col in x[2]]
            self.fast[cell] = self.run.do("make", words, None)


ONCE = {"materialised", "fused_values", "spilled", "fused_key_outer", "fused_query_outer"}  # no recomputation
SCHEDULES = ONCE | {"two_pass"}
WEIGHTS = [(Fraction(1), Fraction(1), Fraction(1)), (Fraction(1), Fraction(71, 100), Fraction(4, 5)),
           (Fraction(2, 3), Fraction(9, 10), Fraction(71, 100))]  # s, a, c


def executed(redblue, schedule, n_q, n_k, d, d_v, M):
    """The run that a schedule makes, or None where it needs more than M words."""
    done = subprocess.run([redblue, "trace", "--op", "backward", "--nq", str(n_q), "--nk", str(n_k), "--d", str(d),
                           "--dv", str(d_v), "--M", str(M), "--schedule", schedule], capture_output=True, text=True)
    return None if done.returncode else Expanded(Run(n_q, n_k, d, d_v), done.stdout).run


def check_run(run, M, cuts, draw, once=False):
    """The least slack of step 3 over `cuts` random segmentations of a run, and the number of segmentations."""
    trimmed, slacks = Trimmed(run, once), []
    for s, a, c in [(Fraction(1),) * 3, (Fraction(2, 3), Fraction(1), Fraction(1))] if once else WEIGHTS:
        slacks.append(trimmed.check(trimmed.cut_by_rule(s, a, c, M), s, a, c, M))
        for _ in range(cuts):
            places = sorted(draw.sample(range(1, len(trimmed.ops)), draw.randrange(1, min(12, len(trimmed.ops) - 1))))
            slacks.append(trimmed.check(places, s, a, c, M))
    return min(slacks), len(slacks)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--redblue", default="build/release/redblue")
    p.add_argument("--cuts", type=int, default=10)
    args = p.parse_args()
    draw = random.Random(10)
    for schedule, (n_q, n_k, d, d_v, M) in product(sorted(SCHEDULES), [(4, 4, 3, 3, 10), (3, 4, 3, 2, 24), (4, 3, 2, 3, 40)]):
        run = executed(args.redblue, schedule, n_q, n_k, d, d_v, M)
        if run is not None:
            for once in [False, True][: 1 + (schedule in ONCE)]:
                slack, count = check_run(run, M, args.cuts, draw, once)
                what = " without recomputation" if once else ""
                print(f"{schedule}, {n_q} x {n_k}, d {d}, d_v {d_v}, M {M}{what}: {count} segmentations, "
                      f"least slack {slack}")


if __name__ == "__main__":
    main()
