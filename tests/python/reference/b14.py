"""Exact verifier for the tables of Theorem B14 (docs/proofs/b14.md, "The conditions"; format: data/b14/README.md).

Written from the statement, in integers and fractions only. A function of r = d_v/d is a list of Bernstein coefficients
on [R0, R1], and a condition is asked of each of them (which suffices). A polynomial in s is non-negative on a piece if
its Bernstein coefficients are, after halving the piece where needed; what is undecided after DEPTH halvings is a
violation.
"""

from collections import Counter
from fractions import Fraction
from itertools import chain, combinations
from math import comb, lcm

DEPTH = 40
ROW, COL, OUTPUTS = "QOU", "KVkv", "Ukv"
NEEDS = {"dQ": ("QOU", "KV"), "dK": ("QO", "KVk"), "dV": ("Q", "Kv")}  # what x and y contain when the flag is set
FLAGS = ["+".join(c) for n in range(4) for c in combinations(NEEDS, n)]
X, Y = (["".join(c) for n in range(1, 5) for c in combinations(items, n)] for items in (ROW, COL))


def product(p, q):
    """Bernstein coefficients of a product of two polynomials, from theirs."""
    m, n = len(p) - 1, len(q) - 1
    total = [Fraction(0)] * (m + n + 1)
    for i, j in ((i, j) for i in range(m + 1) for j in range(n + 1)):
        total[i + j] += Fraction(comb(m, i) * comb(n, j), comb(m + n, i + j)) * p[i] * q[j]
    return total


def non_negative(b, depth=DEPTH):
    """Is the cubic with these (integer) Bernstein coefficients >= 0 on its interval?"""
    if min(b) >= 0:
        return True
    if b[0] < 0 or b[3] < 0 or depth == 0:
        return False
    b0, b1, b2, b3 = b
    half = b0 + 3 * b1 + 3 * b2 + b3
    left = 8 * b0, 4 * (b0 + b1), 2 * (b0 + 2 * b1 + b2), half
    right = half, 2 * (b1 + 2 * b2 + b3), 4 * (b2 + b3), 8 * b3
    return non_negative(left, depth - 1) and non_negative(right, depth - 1)


def lines(f, g):
    """Three times the cubic Bernstein coefficients of the product of two lines given by their end values."""
    (f0, f1), (g0, g1) = f, g
    return 3 * f0 * g0, f0 * g0 + f0 * g1 + f1 * g0, f0 * g1 + f1 * g0 + f1 * g1, 3 * f1 * g1


class Table:
    """W(x, y, e) as node x coefficient, in units of 1/den. Raises ValueError if the table is malformed."""

    def __init__(self, raw):
        self.limit = "nodes" not in raw  # two numbers per entry, value at s = 0 and slope; weights not in the file
        self.nodes = [Fraction(s) for s in raw.get("nodes", ["0", "1"])]
        ends = [Fraction(raw[key]) for key in ("R0", "R1")] if "R0" in raw else [Fraction(1)]
        self.size = {i: ends if i in "OVv" else [Fraction(1)] * len(ends) for i in ROW + COL}
        self.kappa = {}
        for i in ROW + COL:
            arrival = Fraction(raw.get("AO", "1") if i in OUTPUTS else raw.get("AI", "1/2"))
            self.kappa |= {(i, "+"): arrival, (i, "-"): (2 if i in OUTPUTS else 1) - arrival}
        self.den, width, scalar = raw["den"], 2 * len(ends) - 1, len(ends) == 1
        self.c0 = {e: [v] if scalar else v for e, v in raw["c0"].items()}
        self.W = {tuple(k.split("|")): [[v] if scalar else v for v in row] for k, row in raw["W"].items()}
        bounds = {"R": raw.get("Dr"), "C": raw.get("Dc")}
        self.D = {f: {(k[:-1], k[-1]): v for k, v in d.items()} for f, d in bounds.items() if d is not None}
        numbers = chain([[self.den]], self.c0.values(), *self.W.values(), *(d.values() for d in self.D.values()))
        right = [
            all(type(v) is int for row in numbers for v in row),
            self.den > 0 and all(k >= 0 for k in self.kappa.values()),
            self.nodes[0] == 0 and self.nodes[-1] == 1 and all(a < b for a, b in zip(self.nodes, self.nodes[1:])),
            scalar or 0 < ends[0] < ends[1],
            set(self.c0) == set(FLAGS) and set(self.W) == {(x, y, e) for x in X for y in Y for e in FLAGS},
            all(len(row) == len(self.nodes) for row in self.W.values()),
            all(len(v) == width for v in chain(self.c0.values(), *self.W.values())),
            scalar or all({(z, u) for z in (Y if f == "R" else X) for u in "+-"} == set(self.D[f]) for f in "RC"),
            all(len(v) == 2 and min(v) >= 0 for d in self.D.values() for v in d.values()),
        ]
        if not all(right) or any(self.c0[""]):  # c0(none) = 0
            raise ValueError(f"malformed table: {right}")
        if self.limit:
            self.W = {k: [a, [p + q for p, q in zip(a, b)]] for k, (a, b) in self.W.items()}

    def at(self, f, z, o, e):
        """W with z on the side that condition f is about, o on the other; c0 if a side is empty."""
        return self.W[(z, o, e) if f == "R" else (o, z, e)] if z else [self.c0[e]] * len(self.nodes)

    def measure(self, z):
        return [sum(column) for column in zip(*(self.size[i] for i in z))]


def slope_conditions(t, f):
    """D[o, sign] |z| >= +-slope for all z, flags, pieces, if the table has D; else puts the smallest D in t.D[f]."""
    mine, other, upward = (X, Y, 1) if f == "R" else (Y, X, -1)
    given = f in t.D
    D = t.D.setdefault(f, {(o, sign): [Fraction(0)] for o in other for sign in "+-"})
    widths = [b - a for a, b in zip(t.nodes, t.nodes[1:])]
    for (o, sign), z in ((key, z) for key in D for z in mine):
        measure, direction = t.measure(z), upward if sign == "+" else -upward
        cap = product(D[o, sign], measure) if given else None
        for (k, width), e in ((piece, e) for piece in enumerate(widths) for e in FLAGS):
            row = t.at(f, z, o, e)
            rise = [(q - p) * direction for p, q in zip(row[k], row[k + 1])]
            if given:
                yield from ((c * width >= v, ("D", f, o, sign, z, e, k, j)) for j, (c, v) in enumerate(zip(cap, rise)))
            elif rise[0] > 0:
                D[o, sign] = [max(D[o, sign][0], rise[0] / (width * measure[0]))]


def toggle_conditions(t, f):
    """(R); and (C), where s and 1 - s change places. Limit table: s, not s(1-s), for rows, and no D term for columns."""
    mine, other = (X, Y) if f == "R" else (Y, X)
    variants = [0, 1] if not t.limit else [1] if f == "R" else [0]
    q, pieces = lcm(*(s.denominator for s in t.nodes)), []
    for a, b in zip(t.nodes, t.nodes[1:]):
        s, rest = (int(a * q), int(b * q)), (int((1 - a) * q), int((1 - b) * q))
        f0, f1 = fw = rest if f == "R" else s  # the factor in front of the bracket
        g0, g1 = gw = s if f == "R" else rest
        cubic = 3 * f0 * f0 * g0, 2 * f0 * f1 * g0 + f0 * f0 * g1, f1 * f1 * g0 + 2 * f0 * f1 * g1, 3 * f1 * f1 * g1
        pieces.append((fw, [q * v for v in lines(fw, gw)] if t.limit else cubic))  # 3 q^3 f g, or 3 q^3 f f g
    edges = [(z.replace(item, ""), z, item) for z in mine for item in z]
    for o, (small, large, item), sign in ((o, edge, sign) for o in other for edge in edges for sign in "+-"):
        cap = product([size * t.kappa[item, sign] * t.den for size in t.size[item]], t.measure(o))
        D = product(t.D[f][o, sign], t.size[item])
        unit = lcm(*(c.denominator for c in cap + D))
        w, terms = unit * q * q, [(j, 3 * q**3 * int(c * unit), int(d * unit)) for j, (c, d) in enumerate(zip(cap, D))]
        before, after = (small, large) if sign == "+" else (large, small)
        for e in FLAGS:
            old, new = t.at(f, before, o, e), t.at(f, after, o, e)
            for (k, (fw, term)), (j, c, d) in ((p, u) for p in enumerate(pieces) for u in terms):
                change = lines(fw, (new[k][j] - old[k][j], new[k + 1][j] - old[k + 1][j]))
                for v in variants:
                    slack = [c - w * p - v * d * u for p, u in zip(change, term)]
                    yield non_negative(slack), (f, item, sign, small, o, e, k, j, v)


def flag_conditions(t):
    for flag, x, y, e in ((flag, x, y, e) for flag in NEEDS for x in X for y in Y for e in FLAGS):
        if set(NEEDS[flag][0]) <= set(x) and set(NEEDS[flag][1]) <= set(y) and flag not in e:
            after = t.W[x, y, "+".join(g for g in NEEDS if g in e or g == flag)]
            yield all(a <= b for a, b in zip(chain(*after), chain(*t.W[x, y, e]))), ("F", flag, x, y, e)


def mask_conditions(t):
    """(M), after slope_conditions. Limit table: s(1-s) in place of s(1-s)^2, and columns have no D term."""
    largest, sides = (Fraction(1, 4), "R") if t.limit else (Fraction(4, 27), "RC")
    for f, ((o, sign), D) in ((f, entry) for f in sides for entry in t.D[f].items()):
        kappa = min(t.kappa[item, sign] for item in (ROW if f == "R" else COL))
        yield all(largest * b <= kappa * m * t.den for b, m in zip(D, t.measure(o))), ("M", f, o, sign)


def conditions(t):
    """All conditions of a Table but (M), as (holds, name), lazily: a reader may stop at the first violation."""
    yield from chain(*(g(t, f) for g in (slope_conditions, toggle_conditions) for f in "RC"), flag_conditions(t))


def verify(raw):
    """(number of conditions of each kind, names of the violated ones, names of the violated mask conditions)."""
    count, violated, t = Counter(), [], Table(raw)
    for holds, name in conditions(t):
        count[name[0]] += 1
        violated += [] if holds else [name]
    return count, violated, [name for holds, name in mask_conditions(t) if not holds]
