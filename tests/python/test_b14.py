"""The tables behind Theorem B14 verify, carry the constants that the program uses, and damage to them is noticed."""

import json
import random
from collections import Counter
from copy import deepcopy
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from reference import b14

pytestmark = pytest.mark.slow  # it asks the reference and the data alone, not redblue

TABLES = Path(__file__).parents[2] / "data" / "b14"
NAMES = ("ratio", "dense", "limit")
ALL = "dQ+dK+dV"
ROW_ITEMS, COL_ITEMS = "QOU", "KVkv"


@cache
def stored(name):
    return json.loads((TABLES / f"b14-{name}.json").read_text())


def refused(raw):
    """Does the verifier reject it? Stops at the first violated condition."""
    try:
        return any(not holds for holds, _ in b14.conditions(b14.Table(raw)))
    except (KeyError, TypeError, ValueError):
        return True


@pytest.mark.parametrize(
    "name, toggles, slopes, total",
    [("ratio", 193920, 50400, 244416), ("dense", 77568, 0, 77664), ("limit", 6464, 0, 6560)],
)
def test_table_verifies(name, toggles, slopes, total):
    count, violated, masks = b14.verify(stored(name))
    assert violated == []
    assert (count["R"] + count["C"], count["D"], count["F"]) == (toggles, slopes, 96)
    assert sum(count.values()) == total
    assert bool(masks) == (name == "dense")  # the dense table is not for masks


def bernstein(poly, lo=Fraction(1, 8), hi=Fraction(1)):
    """Degree-2 Bernstein coefficients of a + b r + c r^2 on [lo, hi]."""
    a, b, c = poly
    return [a + b * lo + c * lo * lo, a + b * (lo + hi) / 2 + c * lo * hi, a + b * hi + c * hi * hi]


@pytest.mark.parametrize(
    "flags, k5, loss",  # k5 := 100000 (polynomial in r = d_v/d) - loss, in units of d^2
    [(ALL, (4, 7, 3), 13), ("dQ", (2, 3, 1), 5), ("dK+dV", (2, 4, 2), 8)],
)
def test_ratio_table_has_the_constants_of_the_program(flags, k5, loss):
    t = stored("ratio")
    value = [Fraction(v, t["den"]) for v in t["c0"][flags]]
    assert value == [b - Fraction(loss, 100000) for b in bernstein(k5)]


@pytest.mark.parametrize("flags, k5", [("dK", 599995), ("dQ+dK", 1199990)])
def test_ratio_table_at_equal_sizes(flags, k5):
    t = stored("ratio")
    assert Fraction(t["c0"][flags][2], t["den"]) == Fraction(k5, 100000)


def test_dense_table_has_the_constant_of_the_program():
    t = stored("dense")
    assert Fraction(1389600, 100000) <= Fraction(t["c0"][ALL], t["den"]) < Fraction(1389620, 100000)


def test_weights_are_those_of_the_program():
    """h := ceil(4 k5 / 300000) is K over the smallest arrival weight, 3/4; for the dense table it is 9/10."""
    for name, weight in (("ratio", Fraction(3, 4)), ("dense", Fraction(9, 10))):
        t = stored(name)
        assert (Fraction(t["AI"]), Fraction(t["AO"])) == (weight, 2 * weight)


def test_limit_table_is_exact_and_additive():
    t = stored("limit")
    prices = {"dQ": 6, "dK": 6, "dV": 2}
    assert {e: Fraction(v, t["den"]) for e, v in t["c0"].items()} == {
        e: sum(prices[p] for p in e.split("+") if p) for e in b14.FLAGS
    }


# The potential at work: random runs on small problems, Phi by its definition.


class Run:
    """A set of words and the flags of all pairs; Phi evaluated word by word."""

    def __init__(self, raw, n, d, d_v, visible, capacity):
        self.t, self.d, self.d_v, self.visible, self.capacity = b14.Table(raw), d, d_v, visible, capacity
        self.words = [(c, i, u) for c in "QOUKVkv" for i in range(n) for u in range(d_v if c in "OVv" else d)]
        self.set, self.flags = set(), set()
        self.u = Fraction(0)
        if "R0" in raw:
            lo, hi = self.t.size["O"]
            self.u = (Fraction(d_v, d) - lo) / (hi - lo)

    def value(self, x, y, e, s):
        rows = self.t.W[x, y, e] if x and y else [self.t.c0[e]] * len(self.t.nodes)
        k = max(k for k in range(len(rows) - 1) if self.t.nodes[k] <= s)
        a, b = self.t.nodes[k : k + 2]
        p, q = (self.at_ratio(row) for row in rows[k : k + 2])
        return (p + (q - p) * (s - a) / (b - a)) / self.t.den

    def at_ratio(self, v):
        u = self.u
        return v[0] if len(v) == 1 else v[0] * (1 - u) ** 2 + 2 * v[1] * u * (1 - u) + v[2] * u * u

    def phi(self):
        rows = sum(w[0] in ROW_ITEMS for w in self.set)
        s = Fraction(rows, self.capacity or len(self.set) or 1)
        kinds = Counter()
        for i, j in self.visible:
            for t1, t3, t2, t4 in product(range(self.d), range(self.d), range(self.d_v), range(self.d_v)):
                x = "".join(c for c, t in zip("QOU", (t1, t2, t1)) if (c, i, t) in self.set)
                y = "".join(c for c, t in zip("KVkv", (t3, t4, t3, t4)) if (c, j, t) in self.set)
                done = zip(("dQ", "dK", "dV"), (t1, t3, t4))
                kinds[x, y, "+".join(f for f, t in done if (f, i, j, t) in self.flags)] += 1
        total = sum(many * self.value(x, y, e, s) for (x, y, e), many in kinds.items())
        return total / Fraction(self.d_v * self.d_v)  # d^2 times the average

    def ready(self):
        """Flags that may be set: (name, i, j, coordinate) with every word that the product needs in the set."""
        lacking = {(c, i) for c, i, u in self.words if (c, i, u) not in self.set}
        whole = {(c, i): (c, i) not in lacking for c, i, _ in self.words}
        for i, j in self.visible:
            score = whole["Q", i] and whole["K", j]
            both = score and whole["O", i] and whole["V", j]
            yield from (("dQ", i, j, u) for u in range(self.d) if both and ("U", i, u) in self.set)
            yield from (("dK", i, j, u) for u in range(self.d) if both and ("k", j, u) in self.set)
            yield from (("dV", i, j, u) for u in range(self.d_v) if score and ("v", j, u) in self.set)


SHAPES = [("ratio", 2, 1), ("ratio", 2, 2), ("ratio", 4, 1), ("dense", 2, 2), ("limit", 2, 2)]


@pytest.mark.parametrize("name, d, d_v, masked", [(*s, m) for s in SHAPES for m in (False, True) if not (m and "dense" in s)])
def test_potential_rises_by_at_most_weight_times_size(name, d, d_v, masked):
    """Delta Phi <= kappa T for every toggle (kappa M' in the limit), <= 0 for flags; Phi ends at c0(all) for each pair."""
    rng = random.Random(f"{name} {d} {d_v} {masked}")
    visible = [(0, 0), (0, 1), (1, 1), (2, 0), (2, 2)] if masked else list(product(range(2), repeat=2))
    n = 3 if masked else 2
    everything = n * (4 * d + 3 * d_v)
    largest = 0
    for _ in range(6):
        capacity = rng.randint(everything // 2, everything) if name == "limit" else None
        run = Run(stored(name), n, d, d_v, visible, capacity)
        before = run.phi()
        assert before == 0
        for step in range(60):
            fill = rng.random() < 0.75  # drift towards a full memory, so that products happen
            absent = [w for w in run.words if w not in run.set]
            word = rng.choice(absent) if absent and (fill or not run.set) else rng.choice(sorted(run.set))
            sign = "-" if word in run.set else "+"
            if capacity and sign == "+" and len(run.set) == capacity:
                continue
            size = capacity or len(run.set) + (sign == "+")
            run.set ^= {word}
            after = run.phi()
            price = run.t.kappa[word[0], sign] * size
            assert after - before <= price, (step, word, sign)
            if price:
                largest = max(largest, (after - before) / price)
            before = after
            if step % 5 == 0:
                run.flags |= set(run.ready())
                after = run.phi()
                assert after <= before
                before = after
        run.set = set(run.words)
        run.flags |= set(run.ready())
        run.set = set()
        end = run.at_ratio(run.t.c0[ALL]) / Fraction(run.t.den)
        assert run.phi() == d * d * len(visible) * end
    assert largest > Fraction(1, 3)


# Damage. Each mutation returns a table that must be refused.


def tight_toggles(raw):
    """(old entry, new entry, node, coefficient, slack in units) of toggles whose condition has almost no slack at s = 0
    (rows) or s = 1 (columns): at most 1/20000, none in the limit table.

    There the D terms vanish, and at the ends of the range of r a Bernstein coefficient is a value: the condition is read
    off the file without the verifier.
    """
    limit, ratio = "nodes" not in raw, "R0" in raw
    a_in, a_out = Fraction(raw.get("AI", "1/2")), Fraction(raw.get("AO", "1"))

    def number(x, y, e, node, j):
        if not (x and y):
            return raw["c0"][e][j] if ratio else raw["c0"][e]
        entry = raw["W"][f"{x}|{y}|{e}"]
        if limit:
            return sum(entry) if node else entry[0]
        return entry[node][j] if ratio else entry[node]

    tight = []
    for j, r in ((0, Fraction(1, 8)), (2, Fraction(1))) if ratio else ((0, Fraction(1)),):
        size = {i: r if i in "OVv" else Fraction(1) for i in ROW_ITEMS + COL_ITEMS}
        for x, y, e in (key.split("|") for key in raw["W"]):
            for item in x + y:
                row = item in ROW_ITEMS
                node, (x2, y2) = (0, (x.replace(item, ""), y)) if row else (-1, (x, y.replace(item, "")))
                pays = raw["den"] * size[item] * sum(size[i] for i in (y if row else x))
                here, there = number(x, y, e, node, j), number(x2, y2, e, node, j)
                arrival, total = (a_out, 2) if item in "Ukv" else (a_in, 1)
                slack = arrival * pays - (here - there)
                if 0 <= slack <= raw["den"] // 20000:
                    tight.append(((x2, y2, e), (x, y, e), node, j, slack))
                slack = (total - arrival) * pays - (there - here)
                if 0 <= slack <= raw["den"] // 20000:
                    tight.append(((x, y, e), (x2, y2, e), node, j, slack))
    return tight


def shift(raw, entry, node, j, by):
    """Adds `by` units to the value of one entry at one node (s = 0 or s = 1 in the limit table)."""
    key = "|".join(entry)
    if "nodes" not in raw:
        value, slope = raw["W"][key]
        raw["W"][key] = [value, slope + by] if node else [value + by, slope - by]
    elif "R0" in raw:
        raw["W"][key][node][j] += by
    else:
        raw["W"][key][node] += by


@pytest.mark.parametrize("name, many", [("limit", 150), ("dense", 12), ("ratio", 12)])
def test_one_unit_beyond_the_slack_is_refused(name, many):
    rng = random.Random(14)
    tight = tight_toggles(stored(name))
    assert len(tight) > 10
    for n in range(many):
        old, new, node, j, slack = rng.choice(tight)
        raise_new = (n % 2 == 0 and new[0] and new[1]) or not (old[0] and old[1])
        raw = deepcopy(stored(name))
        by = int(slack) + 1
        shift(raw, new if raise_new else old, node, j, by if raise_new else -by)
        assert refused(raw), (old, new, node, j, by, raise_new)


@pytest.mark.parametrize("name, many", [("limit", 150), ("dense", 10), ("ratio", 6)])
def test_a_random_large_change_is_refused(name, many):
    rng = random.Random(15)
    t = stored(name)
    for n in range(many):
        raw = deepcopy(t)
        entry = rng.choice(sorted(t["W"])).split("|")
        node = rng.choice((0, -1) if name == "limit" else range(len(t["nodes"])))
        shift(raw, entry, node, rng.randrange(3), rng.choice((-1, 1)) * 8 * t["den"])
        assert refused(raw), (entry, node)


@pytest.mark.parametrize("name", ["limit", "dense"])
def test_an_entry_above_its_flags_is_refused(name):
    """(F): where setting a flag lowers W by almost nothing, one unit beyond that is too much."""
    rng = random.Random(16)
    t = stored(name)
    equal = []
    for x, y, e in (key.split("|") for key in t["W"]):
        for flag in set(e.split("+")) - {""}:
            before = "+".join(g for g in e.split("+") if g != flag)
            needs_x, needs_y = b14.NEEDS[flag]
            if set(needs_x) <= set(x) and set(needs_y) <= set(y):
                slack = t["W"][f"{x}|{y}|{before}"][0] - t["W"][f"{x}|{y}|{e}"][0]
                equal += [((x, y, e), slack)] if slack <= t["den"] // 20000 else []
    assert equal
    for entry, slack in rng.sample(sorted(equal), min(8, len(equal))):
        raw = deepcopy(t)
        shift(raw, entry, 0, 0, slack + 1)
        assert refused(raw), entry


def change(t, *path, by=None, to=None):
    """One number of the table is `to`, or `by` of what it was."""
    *path, last = path
    for key in path:
        t = t[key]
    t[last] = to if by is None else by(t[last])


def exchange(t, one, other):
    t[one], t[other] = t[other], t[one]


def exchanged_flags(t):
    for key, entry in list(t["W"].items()):
        x, y, e = key.split("|")
        if e in ("dQ", "dV"):
            t["W"][f"{x}|{y}|{'dV' if e == 'dQ' else 'dQ'}"] = entry


def exchanged_items(t):
    """U and Q change roles."""
    swap = str.maketrans("QU", "UQ")
    old = dict(t["W"])
    for key, entry in old.items():
        x, y, e = key.split("|")
        t["W"]["|".join(("".join(sorted(x.translate(swap), key="QOU".index)), y, e))] = entry


def raised(t, flags):
    """More than the tables give away to rounding, or one unit in the limit table."""
    little = max(1, t["den"] // 1000)
    change(t, "c0", flags, by=lambda value: [v + little for v in value] if "R0" in t else value + little)
    return little


def all_done_raised(t):
    """c0(all) and every entry with all flags: only (F) can object."""
    little = raised(t, ALL)
    for key, row in t["W"].items():
        if key.endswith(ALL):
            steps = [little, 0] if "nodes" not in t else [little] * len(row)  # a slope is not to move
            t["W"][key] = [[u + by for u in v] if "R0" in t else v + by for v, by in zip(row, steps)]


def as_real_number(value):
    return [float(v) for v in value] if isinstance(value, list) else float(value)


EVERYWHERE = {
    "no entry": lambda t: t["W"].pop("QO|KV|dQ"),
    "an entry too many": lambda t: change(t, "W", "QO|KVQ|dQ", to=t["W"]["QO|KV|dQ"]),
    "no flags": lambda t: t["c0"].pop("dQ+dV"),
    "starts above zero": lambda t: change(t, "c0", "", to=[1, 1, 1] if "R0" in t else 1),
    "a short row": lambda t: t["W"]["Q|K|"].pop(),
    "a long row": lambda t: t["W"]["Q|K|"].append(t["W"]["Q|K|"][-1]),
    "a real number": lambda t: change(t, "W", "Q|K|", 0, by=as_real_number),
    "a text": lambda t: change(t, "W", "Q|K|", 0, to="0"),
    "no denominator": lambda t: t.pop("den"),
    "a negative denominator": lambda t: change(t, "den", by=lambda den: -den),
    # Every value becomes larger than what the weights pay for.
    "a smaller unit": lambda t: change(t, "den", by=lambda den: den * 99 // 100),
    "exchanged flags": exchanged_flags,
    "exchanged items": exchanged_items,
    "its end raised": lambda t: raised(t, ALL),
    "a part raised": lambda t: raised(t, "dQ"),
    "all that is done raised": all_done_raised,
}
WITH_NODES = {
    "exchanged nodes": lambda t: exchange(t["nodes"], 1, 2),
    "values exchanged at the first two nodes": lambda t: [exchange(row, 0, 1) for row in t["W"].values()],
    "a node moved": lambda t: change(t, "nodes", 1, to="1/32"),
    "no last node": lambda t: change(t, "nodes", -1, to="15/16"),
    "another weight of inputs": lambda t: change(t, "AI", to="17/20"),
    "another weight of outputs": lambda t: change(t, "AO", to="19/10"),
    # An input that arrives for 11/10 would leave for -1/10.
    "a weight beyond the sum": lambda t: change(t, "AI", to="11/10"),
}
WITH_RATIO = {
    "no bound of a slope": lambda t: t["Dr"].pop("KV-"),
    "a negative bound of a slope": lambda t: change(t, "Dr", "KV-", 0, to=-1),
    "a low bound of a slope": lambda t: change(t, "Dc", "QO+", by=lambda bound: [v * 9 // 10 for v in bound]),
    # Valid as bounds, but the D term is then too large for (R).
    "high bounds of slopes": lambda t: [change(v, k, by=lambda x: 2 * x) for v in t["Dr"].values() for k in (0, 1)],
    "exchanged bounds of slopes": lambda t: exchange(t["Dr"], "K+", "V+"),
    "coefficients in reverse": lambda t: [b.reverse() for row in t["W"].values() for b in row],
    "another middle coefficient": lambda t: change(t, "c0", ALL, 1, by=lambda v: v + 10**4),
    # The same coefficients read on [1/16, 1]: the sizes at the lower end are smaller.
    "a smaller range": lambda t: change(t, "R0", to="1/16"),
    "an empty range": lambda t: exchange(t, "R0", "R1"),
}
DAMAGE = [(name, what, mutate) for kinds, names in ((EVERYWHERE, NAMES), (WITH_NODES, NAMES[:2]), (WITH_RATIO, NAMES[:1]))
          for name in names for what, mutate in kinds.items()]


@pytest.mark.parametrize("name, what, mutate", DAMAGE, ids=lambda x: x if isinstance(x, str) else "")
def test_damage_is_refused(name, what, mutate):
    raw = deepcopy(stored(name))
    mutate(raw)
    assert json.dumps(raw) != json.dumps(stored(name))
    assert refused(raw)


def test_an_interior_minimum_is_found():
    """Bernstein coefficients of either sign: the cubic decides, not its coefficients."""
    assert b14.non_negative((1, -1, 1, 3)) is True  # 1 - 6 s + 12 s^2 - 4 s^3: lowest 0.17
    assert b14.non_negative((1, -2, 1, 1)) is False  # 1 - 9 s + 18 s^2 - 9 s^3: 1/8 at 1/2, but negative near 1/4
    assert b14.non_negative((3, -1, -1, 3)) is True  # 3 (2s - 1)^2, zero at 1/2
    assert b14.non_negative((3, -2, -1, 3)) is False
