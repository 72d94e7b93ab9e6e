"""Theorem B10: its finite part holds and notices damage, and its accounting holds on executed and on drawn runs."""

import json
import random
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from program import CLI, needs_program, redblue

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import b10_accounting as accounting  # noqa: E402
import check_b10 as finite  # noqa: E402


class Drawn:
    """A run of the class of B10 that does everything a run may: words spilled or dropped at any time, partial sums kept
    in several copies, merged, read twice, pairs formed anew, outputs summed in several parts."""

    def __init__(self, draw, n_q, n_k, d, d_v, M, once=False):
        self.run, self.draw, self.M = accounting.Run(n_q, n_k, d, d_v), draw, M
        self.fast, self.slow, self.pinned = set(), set(), set()
        self.once = once  # form no product of S or dP a second time
        self.spill = 1 if once else draw.random()
        products = [("dV", i, j, t) for i, j, t in product(range(n_q), range(n_k), range(d_v))]
        products += [(x, i, j, t) for x, i, j, t in product(("dQ", "dK"), range(n_q), range(n_k), range(d))]
        order = draw.choice([lambda p: p, lambda p: (p[1], p), lambda p: (p[2], p), lambda p: draw.random()])
        for made in sorted(products, key=order):
            self.output(*made)
        for item in {self.item(x) for x in self.fast | self.slow if self.item(x)[0] in accounting.OUTPUTS}:
            self.finish(item)

    def item(self, x):
        return self.run.copies[x][0]

    def content(self, x):
        return self.run.copies[x][1]

    def keep(self, x, instead_of=()):
        """A new word, pinned until the caller has done with it."""
        self.fast -= set(instead_of)
        self.pinned -= set(instead_of)
        self.fast.add(x)
        self.pinned.add(x)
        assert len(self.fast) <= self.M
        return x

    def room(self):
        while len(self.fast) >= self.M:
            self.evict(self.draw.choice(sorted(self.fast - self.pinned)))

    def evict(self, x):
        kind = self.item(x)[0]
        if kind in accounting.OUTPUTS or (kind in accounting.PAIRS and self.draw.random() < self.spill):
            self.slow.add(self.run.move("write", x))
        self.fast.discard(x)

    def read(self, x, once):
        self.room()
        if once:
            self.slow.discard(x)
        return self.keep(self.run.move("read", x))

    def input(self, *item):
        for x in self.fast:
            if self.item(x) == item:
                self.pinned.add(x)
                return x
        self.room()
        return self.keep(self.run.load(item))

    def copies(self, where, item):
        return [x for x in sorted(where) if self.item(x) == item]

    def pair(self, family, i, j):
        """A complete word of the pair, resident and pinned."""
        item, draw = (family, i, j), self.draw
        whole = [x for x in self.copies(self.fast, item) if self.run.complete(item, self.content(x))]
        if whole:
            self.pinned.add(whole[0])
            return whole[0]
        x = None
        there, parked = self.copies(self.fast, item), self.copies(self.slow, item)
        if self.once:  # the words with the most products have what the others have
            there, parked = (sorted(where, key=lambda y: -len(self.content(y)))[:1] for where in (there, parked))
            if there and parked and len(self.content(parked[0])) > len(self.content(there[0])):
                there = []
        if there and (self.once or draw.random() < 0.7):
            x = draw.choice(there)
            self.pinned.add(x)
        elif parked and (self.once or draw.random() < 0.7):
            x = self.read(draw.choice(parked), False)
        levels = self.run.d if family == "S" else self.run.d_v
        while x is None or len(self.content(x)) < levels:
            others = [y for y in self.copies(self.slow, item) if x is not None and not self.content(y) & self.content(x)]
            made = self.content(x) if x is not None else set()
            if self.once:
                others.sort(key=lambda y: -len(self.content(y)))
                made = made.union(*(self.content(y) for y in self.copies(self.slow | self.fast, item)))
            if others and (len(made) == levels or draw.random() < 0.5):
                y = self.read(others[0] if self.once else draw.choice(others), False)
                x = self.keep(self.run.do("make", (x, y), item, self.content(x) | self.content(y)), (x, y))
                continue
            if x is None and len(made) == levels:  # all products are in words that lie in slow memory
                x = self.read(max(self.copies(self.slow, item), key=lambda y: len(self.content(y))), False)
                continue
            t = draw.choice([t for t in range(levels) if t not in made])
            names = ("Q", "K") if family == "S" else ("dO", "V")
            factors = self.input(names[0], i, t), self.input(names[1], j, t)
            if x is None:
                self.room()
            x = self.keep(self.run.add((family, i, j, t), factors, x), () if x is None else (x,))
            self.pinned -= set(factors)
            if len(self.content(x)) < levels and draw.random() < max(self.spill, 0.5) / 4:
                self.slow.add(self.run.move("write", x))
                if draw.random() < 0.5:
                    self.fast.discard(x)
                    self.pinned.discard(x)
                    x = None
        return x

    def output(self, family, i, j, t):
        factor = {"dV": ("dO", i, t), "dQ": ("K", j, t), "dK": ("Q", i, t)}[family]
        item = {"dV": ("dV", j, t), "dQ": ("dQ", i, t), "dK": ("dK", j, t)}[family]
        operands = [self.pair("S" if family == "dV" else "D", i, j), self.input(*factor)]
        sums = self.copies(self.fast, item)
        word = self.draw.choice(sums) if sums and self.draw.random() < 0.9 else None
        parked = self.copies(self.slow, item)
        if word is None and parked and self.draw.random() < 0.7:
            word = self.read(self.draw.choice(parked), True)
        if word is None:
            self.room()
        self.keep(self.run.add((family, i, j, t), operands, word), () if word is None else (word,))
        self.pinned.clear()

    def finish(self, item):
        while parts := self.copies(self.fast, item)[:2]:
            self.pinned |= set(parts)
            if len(parts) < 2 and (parked := self.copies(self.slow, item)):
                parts.append(self.read(parked[0], True))
            if len(parts) < 2:
                break
            self.keep(self.run.do("make", parts, item, self.content(parts[0]) | self.content(parts[1])), parts)
        parts = self.copies(self.fast, item)
        if not parts:
            self.read(self.copies(self.slow, item)[0], True)
            self.finish(item)
            return
        self.run.move("write", parts[0])
        self.fast.discard(parts[0])
        self.pinned.clear()


def drawn(seed, once=False):
    draw = random.Random(seed)
    n_q, n_k, d, d_v = (draw.randint(1, 3), draw.randint(2, 3), draw.randint(1, 3), draw.randint(1, 3))
    M = draw.randint(5, 20)
    return Drawn(draw, n_q, n_k, d, d_v, M, once).run, M, draw


# ---- The finite part ----


def test_the_finite_part_holds():
    assert finite.certificate() == (1440, Fraction(45521, 2_500_000_000), [])
    assert finite.certificate(finite.KINDS_ONCE) == (2700, Fraction(2, 25), [])
    assert all(finite.cuts().values())


def violated():
    return bool(finite.certificate()[2])


def test_the_finite_part_notices_weights_that_are_too_small(monkeypatch):
    """2 a^2 < 1; a pair that only uses P, or dS, of weight below 1; an output that weighs as little as an input."""
    monkeypatch.setattr(finite, "LOW", Fraction(7, 10))
    assert violated()
    monkeypatch.undo()
    kinds = finite.KINDS
    for k, (weights, m) in enumerate(kinds):
        lighter = weights, {power: x * Fraction(49, 50) for power, x in m.items()}
        monkeypatch.setattr(finite, "KINDS", [*kinds[:k], lighter, *kinds[k + 1 :]])
        one_kind_of_words = ("b" in weights) != ("e" in weights)  # where both are there the lemma has room
        assert violated() == one_kind_of_words, weights
    monkeypatch.undo()
    forms = finite.forms

    def light_outputs(order):
        grown, x, y = forms(order)
        return grown, {g: x[g] - (g in grown["e"]) for g in x}, y

    monkeypatch.setattr(finite, "forms", light_outputs)
    assert violated()


# ---- The accounting ----

SIZES = [(3, 3, 3, 2, 10), (3, 3, 2, 2, 24), (2, 4, 2, 3, 40)]


@needs_program
@pytest.mark.parametrize("schedule", sorted(accounting.SCHEDULES))
def test_accounting_of_executed_runs(schedule):
    draw, done = random.Random(10), 0
    for n_q, n_k, d, d_v, M in SIZES:
        run = accounting.executed(CLI, schedule, n_q, n_k, d, d_v, M)
        if run is None:
            continue
        options = ["--nq", n_q, "--nk", n_k, "--d", d, "--dv", d_v, "--M", M, "--schedule", schedule, "--json"]
        counted = json.loads(redblue("count", "--op", "backward", *options).stdout)["counted"]
        kinds = [kind for kind, _, _, _ in run.ops]
        assert (kinds.count("read"), kinds.count("write")) == (counted["reads"], counted["writes"])
        accounting.check_run(run, M, 1, draw)
        if schedule in accounting.ONCE:
            accounting.check_run(run, M, 1, draw, once=True)
        done += 1
    assert done >= 2


@pytest.mark.parametrize("seed", range(6))
def test_accounting_of_drawn_runs(seed):
    run, M, draw = drawn(seed)
    accounting.check_run(run, M, 4, draw)


@pytest.mark.parametrize("seed", range(6))
def test_accounting_of_drawn_runs_without_recomputation(seed):
    run, M, draw = drawn(seed, once=True)
    accounting.check_run(run, M, 4, draw, once=True)


@pytest.mark.parametrize("credit", ["O_n", "N"])
def test_accounting_needs_its_credits(credit):
    """Without the term for first visits of outputs, or for first completions, some run moves less than is charged."""
    fails = 0
    for seed in range(8):
        run, M, _ = drawn(seed)
        trimmed = accounting.Trimmed(run)
        setattr(trimmed, credit, 0)
        try:
            trimmed.check([], 1, 1, 1, M)
        except AssertionError as e:
            fails += "step 3" in str(e)
    assert fails > 0
