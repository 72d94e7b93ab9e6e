"""Best tilings by exhaustive search, and the lower bounds, for a problem and M words of fast memory."""

from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt
from typing import NamedTuple

from reference import formulas
from reference.formulas import Cost, ceil_div

# Up to this size every tile size is tried.
SMALL = 24


class Plan(NamedTuple):
    schedule: str
    tiling: dict
    cost: Cost


@lru_cache(maxsize=None)
def sizes(n):
    """Tile sizes to try for a dimension n. Costs depend on ceil(n / b) only and footprints grow with b,
    so for large n the smallest b of each ceiling is enough."""
    if n <= SMALL:
        return list(range(1, n + 1))
    return sorted({ceil_div(n, t) for t in range(1, n + 1)})


def cheapest(p, M, schedule, tilings, source=formulas):
    """The tiling of least I/O, then fewest writes, then least footprint; None if none fits."""

    def order(plan):
        return plan.cost.io, plan.cost.writes, plan.cost.footprint

    cost = getattr(source, schedule)
    tried = (Plan(schedule, tiling, cost(p, **tiling)) for tiling in tilings)
    return min((plan for plan in tried if plan.cost.footprint <= M), key=order, default=None)


def cheapest_phase(M, pairs, phase):
    """Tile pair of least reads, then least footprint. Phases follow each other: reads add up, footprints do not."""
    found = []
    for pair in pairs:
        reads, footprint = phase(*pair)
        if footprint <= M:
            found.append((reads, footprint, pair))
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def grid(xs, ys):
    return ((x, y) for x in xs for y in ys)


def naive(p, M):
    rho = 1 if formulas.naive_softmax(p.n_k, 1) <= M else 2
    rows = sizes(p.rows)
    scores = cheapest_phase(M, grid(rows, sizes(p.n_k)), lambda x, y: formulas.gemm(p.rows, p.d, p.n_k, x, y))
    values = cheapest_phase(M, grid(rows, sizes(p.d_v)), lambda x, y: formulas.gemm(p.rows, p.n_k, p.d_v, x, y))
    if scores is None or values is None:
        return None
    tiling = dict(b1=scores[0], b2=scores[1], b3=values[0], b4=values[1], rho=rho)
    return cheapest(p, M, "naive", [tiling])


def flash(p, M):
    # Bc = 1: the I/O does not depend on Bc, the footprint grows with it.
    return cheapest(p, M, "flash", (dict(Br=Br, Bc=1) for Br in sizes(p.rows)))


def column_split(p, M):
    tilings = (dict(Br=Br, Bc=1, h=h) for h in range(2, p.d_v + 1) for Br in sizes(p.rows))
    return cheapest(p, M, "column_split", tilings)


def split_keys(p, M):
    """As flash; the number of groups follows from the shape."""
    G = max(1, p.n_k // (128 * max(p.rows, 16)))
    G = ceil_div(p.n_k, ceil_div(p.n_k, G))
    return cheapest(p, M, "split_keys", (dict(Br=Br, Bc=1, G=G) for Br in sizes(p.rows)))


def flash_tiled(p, M, min_Bc=1):
    # As for flash, a larger Bc than asked for only takes words.
    Bc = min(min_Bc, p.n_k)
    return cheapest(p, M, "flash_tiled", (dict(Br=Br, Bc=Bc) for Br in sizes(p.rows)))


def flash_pinned(p, M):
    if p.n_k <= SMALL:
        pins = range(p.n_k + 1)
        return cheapest(p, M, "flash_pinned", (dict(Br=Br, rho=rho) for Br, rho in grid(sizes(p.rows), pins)))

    def tilings():
        # Reads fall with rho (or do not depend on it, with a single row block): the largest that fits, or none.
        for Br in sizes(p.rows):
            rest = M - Br * (p.d + p.d_v + 3)
            all_pinned = rest >= p.n_k * (p.d + p.d_v)
            yield dict(Br=Br, rho=0)
            yield dict(Br=Br, rho=p.n_k if all_pinned else min(p.n_k - 1, max(0, (rest - 1) // (p.d + p.d_v))))

    return cheapest(p, M, "flash_pinned", tilings())


def key_outer(p, M):
    return cheapest(p, M, "key_outer", (dict(Bc=Bc) for Bc in sizes(p.n_k)))


def small_cache(p, M):
    rows = sizes(p.rows)
    columns = [None, *sizes(p.n_k)]
    scores = cheapest_phase(M, grid(rows, columns), lambda a, b: formulas.small_cache_scores(p, a, b))
    values = cheapest_phase(M, grid(rows, sizes(p.d_v)), lambda a2, c2: formulas.small_cache_values(p, a2, c2))
    if scores is None or values is None:
        return None
    return cheapest(p, M, "small_cache", [dict(a=scores[0], b=scores[1], a2=values[0], c2=values[1])])


def saha_ye(p, M):
    return cheapest(p, M, "saha_ye", [dict(B=isqrt(M // 4))]) if M >= 4 else None


def score_tiles(p, M):
    return cheapest(p, M, "score_tiles", (dict(a=a, b=b) for a, b in grid(sizes(p.rows), sizes(p.n_k))))


STABLE = (flash, flash_tiled, column_split, split_keys, naive, flash_pinned, key_outer, small_cache, score_tiles)


def plans(p, M):
    """Cheapest plan of every stable algorithm that fits, by name."""
    found = [search(p, M) for search in STABLE]
    return {plan.schedule: plan for plan in found if plan}


def best(p, M):
    return min(plans(p, M).values(), key=lambda plan: (plan.cost.io, plan.cost.writes), default=None)


def ceil_sqrt(x):
    """Smallest integer >= sqrt(x) for a non-negative fraction x, exactly."""
    root = isqrt(x.numerator // x.denominator)
    return root if root * root >= x else root + 1


def pairs(p):
    """Scores that must be formed: a row with a single key has P = 1 whatever its score is."""
    return p.copies * p.rows * p.n_k if p.n_k >= 2 else 0


def trivial(p):
    """Inputs that matter and outputs, without the lse."""
    scored = (p.rows + p.n_k) * p.d if p.n_k >= 2 else 0
    return p.copies * (scored + p.n_k * p.d_v + p.rows * p.d_v)


def theorem_f1(p, M):
    """Theorem F': irrational only where s = 1, so the ceiling is taken of a square root or of a fraction."""
    N, width = pairs(p), p.d + p.d_v
    lines = []
    if M <= 4 * p.d**2:
        lines.append(ceil_sqrt(Fraction((2 * width * N) ** 2, M)) - N - M)
    c = 1 - Fraction(1, 2 * M)
    k = c * min(width, 2 * p.d)
    if k * k < M:
        lines.append(ceil((2 * c * k * width * N - k * k * N) / M - M))
    else:
        lines.append(ceil_sqrt((2 * c * width * N) ** 2 / M) - N - M)
    return max(lines)


def value(N, K, M):
    def gain(L):
        part = max(Fraction((M + L) ** 2, 4 * K), M + Fraction(L, 2), Fraction(L**2, 4 * K) + M,
                   Fraction(M**2, 4 * K) + Fraction(L, 2))
        return L * N / part - (L - M)

    return max(gain(M * t // 8) for t in range(8, 161))


def theorem_f2(p, M):
    """Theorem F''."""
    K = (p.d + p.d_v) ** 2 if p.d_v <= p.d else 4 * p.d * p.d_v
    return ceil(value(pairs(p), K, M))


def theorem_g(p, M):
    return ceil(Fraction(pairs(p) * p.d**2, M + 4 * p.d**2) - M)


def bounds(p, M):
    """Every lower bound in words, by theorem, none below zero."""
    lines = {"trivial": trivial(p), "F'": theorem_f1(p, M), "F''": theorem_f2(p, M), "G": theorem_g(p, M)}
    return {name: max(0, words) for name, words in lines.items()}
