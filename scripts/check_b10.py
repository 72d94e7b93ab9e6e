#!/usr/bin/env python3
"""The finite part of Theorem B10 (docs/proofs/b10.md), in exact arithmetic: no floating-point number decides anything.

    check_b10.py

Step 4 of the proof: in every order of the counts A, e, f and b, C, and for every kind of pair, m X Y - 2 n^2 is a
quadratic form in the increments of the counts. Its coefficients are polynomials in the weights a and c. The script
shows that each is at least 0 on the square [0.70711, 1]^2 by its Bernstein coefficients there.
Step 5: the inequalities by which a segment of 4M charges executes at most 2 M^(3/2)/g products.
Runs without recomputation: the form of step 4 for a = c = 1, where a pair that ends in its segment has 7/5 for 1.
Prints what was checked and the least coefficient, and ends with 1 if something is violated."""

import sys
from fractions import Fraction
from itertools import permutations, product
from math import comb, isqrt

LOW, HIGH = Fraction(70711, 100000), Fraction(1)
COUNTS = "AefbC"  # products of one pair in a segment: S, dQ, dK, dV, dP

# Polynomials in (a, c): {(power of a, power of c): coefficient}.
ZERO, ONE, A, C = {}, {(0, 0): 1}, {(1, 0): 1}, {(0, 1): 1}


def plus(p, q, times=1):
    return {k: p.get(k, 0) + times * q.get(k, 0) for k in p.keys() | q.keys()}


def times(p, q):
    total = {}
    for (k, x), (h, y) in product(p.items(), q.items()):
        power = k[0] + h[0], k[1] + h[1]
        total[power] = total.get(power, 0) + x * y
    return total


# Kinds of pair: what its S-words and its D-words are charged and do. (weights of the counts in n, m)
S_KINDS = [({"A": A, "b": ONE}, times({(0, 0): 2}, times(A, A))), ({"b": ONE}, ONE), ({}, ZERO)]
D_KINDS = [({"C": C, "e": ONE, "f": ONE}, times({(0, 0): 2}, times(C, C))), ({"e": ONE, "f": ONE}, ONE), ({}, ZERO)]
KINDS = [({**s, **d}, plus(m_s, m_d)) for (s, m_s), (d, m_d) in product(S_KINDS, D_KINDS) if s or d]

# The same for a = c = 1 and runs without recomputation: the uses of a pair that ends in its segment count 7/5 each.
MORE = {(0, 0): Fraction(7, 5)}
TWO = {(0, 0): 2}
S_ONCE = [({"A": ONE, "b": ONE}, TWO), ({"A": ONE, "b": MORE}, TWO), *S_KINDS[1:]]
D_ONCE = [({"C": ONE, "e": ONE, "f": ONE}, TWO), ({"C": ONE, "e": MORE, "f": MORE}, TWO), *D_KINDS[1:]]
KINDS_ONCE = [({**s, **d}, plus(m_s, m_d)) for (s, m_s), (d, m_d) in product(S_ONCE, D_ONCE) if s or d]

# An order, least first: A, e, f and b, C each grow by increments >= 0.
ORDERS = list(product(permutations("Aef"), permutations("bC")))


def increments(order):
    """{count: the set of increments that it is the sum of}"""
    return {x: {chain[k] for k in range(place + 1)} for chain in order for place, x in enumerate(chain)}


def larger(grown, x, y):
    return grown[x] | grown[y]  # of two counts in one order one set contains the other


def forms(order):
    """X and Y as {increment: coefficient}: least words of a row and of a column of the pair."""
    grown = increments(order)

    def total(*parts):
        return {g: sum(k for k, words in parts if g in words) for g in COUNTS}

    x = total((1, larger(grown, "A", "f")), (1, larger(grown, "b", "C")), (2, grown["e"]))
    y = total((1, larger(grown, "A", "e")), (1, grown["C"]), (2, grown["b"]), (2, grown["f"]))
    return grown, x, y


def coefficients(kinds):
    """(kind, order, increments, polynomial) of every coefficient of m X Y - 2 n^2."""
    for kind, order in product(range(len(kinds)), ORDERS):
        weights, m = kinds[kind]
        grown, x, y = forms(order)
        n = {g: ZERO for g in COUNTS}
        for count, weight in weights.items():
            for g in grown[count]:
                n[g] = plus(n[g], weight)
        for i, g in enumerate(COUNTS):
            for h in COUNTS[i:]:
                both = x[g] * y[h] + (x[h] * y[g] if g != h else 0)
                square = times(n[g], n[h])
                yield kind, order, g + h, plus(times(m, {(0, 0): both}), square, -2 if g == h else -4)


def bernstein(p, degree=2):
    """Bernstein coefficients on [LOW, HIGH]^2 of a polynomial of this degree at most in each of a, c."""

    def column(k):  # a^k as Bernstein coefficients: its blossom
        return [sum(Fraction(comb(i, r) * comb(degree - i, k - r), comb(degree, k)) * HIGH**r * LOW ** (k - r)
                    for r in range(k + 1) if r <= i and k - r <= degree - i) for i in range(degree + 1)]

    powers = [column(k) for k in range(degree + 1)]
    return [sum((x * powers[k][i] * powers[h][j] for (k, h), x in p.items()), Fraction(0))
            for i in range(degree + 1) for j in range(degree + 1)]


def certificate(kinds=None):
    """How many coefficients there are, the least Bernstein coefficient that is not 0, and those violated."""
    count, least, violated = 0, None, []
    for kind, order, pair, p in coefficients(KINDS if kinds is None else kinds):
        count += 1
        values = bernstein(p)
        if min(values) < 0:
            violated.append((kind, order, pair, min(values)))
        for v in values:
            if v != 0 and (least is None or v < least):
                least = v
    return count, least, violated


def root(x, digits=30):
    """A fraction between sqrt(x) and sqrt(x) + 10^-digits."""
    x = Fraction(x) * 100**digits
    return Fraction(isqrt(x.numerator // x.denominator) + 1, 10**digits)


def at_most(left, right):
    """Is a sum of x^(3/2), x in `left`, at most 3 sqrt(6) / 2 times `right`? (From above against from below.)"""
    return sum(x * root(x) for x in left) <= Fraction(3, 2) * right * (root(6) - Fraction(1, 10**30))


def cuts():
    """{what is claimed: does it hold?}. z = 3/M for M >= 1; all sides are convex in z and in the charges."""
    return {
        "between: 3/8 (1/(2M))^2 <= 0.1/M^2 = 1 - g": Fraction(3, 8) / 4 <= Fraction(1, 10),
        "first and last segment, four corners": all(at_most([5 + z, 1 + tau], 4 + z + tau) for z in (0, 3) for tau in (0, 4)),
        "one segment: t <= 7M <= (27/2) M": 7 <= Fraction(27, 2),
    }


def main():
    wrong = 0
    for what, kinds in (("step 4", KINDS), ("without recomputation", KINDS_ONCE)):
        count, least, violated = certificate(kinds)
        wrong += len(violated)
        print(f"{what}: {count} coefficients of {len(kinds)} kinds of pair in {len(ORDERS)} orders; least Bernstein "
              f"coefficient that is not 0: {least} = {float(least):.3g}; violated: {len(violated)}")
        for kind, order, pair, value in violated[:10]:
            print(f"  violated: kind {kind}, order {order}, increments {pair}: {value}")
    held = cuts()
    for claim, holds in held.items():
        print(f"{claim}: {'holds' if holds else 'VIOLATED'}")
    return 1 if wrong or not all(held.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
